package addressing

import (
	"fmt"
	"net/netip"

	"github.com/trivet-project/trivet"
)

// Stated returns an address that the boot port of a machine has, as an operator states, and that may have no record.
func (l *Leases) Stated(m *trivet.Machine, a netip.Addr) (*Proposal, error) {
	refuse := func(why string) error {
		return fmt.Errorf("%w: %s cannot be the address of machine %s: %s", trivet.ErrInvalid, a, m.Name, why)
	}
	n := l.Network(a)
	switch {
	case len(m.Spec.NICs) == 0:
		return nil, refuse("spec.nics has no port")
	case m.Spec.NICs[0].Address.IsValid() && m.Spec.NICs[0].Address != a:
		return nil, refuse("its spec.nics[0].address is " + m.Spec.NICs[0].Address.String())
	case n == nil || !n.Record.Spec.Assigns():
		return nil, refuse("it is in no network whose addresses Trivet assigns")
	}
	r := &Request{MAC: m.Spec.NICs[0].MAC, Machine: m, Network: n}
	switch {
	case r.fixed() != a && l.reserved(r, a):
		return nil, refuse("it is a head's, or fixed for another machine")
	case !r.owns(a):
		return nil, refuse("it is in no range for known machines of network " + n.Record.Name)
	}
	return &Proposal{leases: l, request: r, address: a}, nil
}
