package osinit

import (
	"bytes"
	"net"
	"slices"
	"strings"
)

// link is a network interface as far as choosing one goes.
type link struct {
	name    string
	mac     net.HardwareAddr
	carrier bool
}

// choose returns the ports to ask for an address on, best first. The port that the firmware booted from is the only one, as
// long as it is there; without it, or when it is not known, every port with a carrier is as good.
func choose(links []link, boot net.HardwareAddr) []link {
	ready := slices.DeleteFunc(slices.Clone(links), func(l link) bool { return !l.carrier || len(l.mac) != 6 })
	slices.SortFunc(ready, func(a, b link) int { return strings.Compare(a.name, b.name) })
	for _, l := range links {
		if bytes.Equal(l.mac, boot) && len(boot) > 0 {
			return slices.DeleteFunc(ready, func(r link) bool { return !bytes.Equal(r.mac, boot) })
		}
	}
	return ready
}
