package osinit

import (
	"bytes"
	"net"
	"slices"
	"strings"
)

// link is what the choice of a network interface depends on.
type link struct {
	name    string
	mac     net.HardwareAddr
	carrier bool
}

// choose returns the ports for DHCP, best first. If the port that the firmware booted from exists, it is the only one;
// otherwise it is every port with a carrier.
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
