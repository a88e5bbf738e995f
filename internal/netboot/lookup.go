package netboot

import (
	"net/netip"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/state"
)

// host is what this head knows of a port that boots. Its records are the local copy's own: they are never changed.
type host struct {
	mac      string
	machine  *trivet.Machine  // nil: unknown
	workflow *trivet.Workflow // nil: none
	address  netip.Addr       // the one that the port was found by, if it was
}

// host looks up a port by its canonical MAC.
func (s *Server) host(mac string) host {
	h := host{mac: mac}
	if all := s.Machines.SharedBy(state.ByMAC, mac); len(all) > 0 {
		h.machine = all[0]
	}
	if h.machine == nil || h.machine.Status.Workflow == "" {
		return h
	}
	if w, err := s.Workflows.GetShared(trivet.Resolve("", h.machine.Status.Workflow)); err == nil {
		h.workflow = w
	}
	return h
}

// Known reports whether a machine that this head knows has an address.
func (s *Server) Known(a netip.Addr) bool {
	mac := s.Leases.Holder(a)
	return mac != "" && len(s.Machines.SharedBy(state.ByMAC, mac)) > 0
}

// name is the machine's, or the one that it will enrol under.
func (h host) name() string {
	if h.machine != nil {
		return h.machine.Name
	}
	return fleet.EnrolledName(h.mac)
}

// networkOf returns the network that a port boots from: the peer's, else the one that it has an address in.
func (s *Server) networkOf(h host, peer netip.Addr) *trivet.Network {
	if n := s.Leases.Network(peer); n != nil {
		return n.Record
	}
	return s.Leases.NetworkOf(h.mac)
}
