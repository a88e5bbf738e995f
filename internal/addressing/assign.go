package addressing

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/ipam"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// Proposal is an address for the boot port of a machine that has never asked for one.
type Proposal struct {
	leases  *Leases
	request *Request
	address netip.Addr
	only    bool // the network was chosen because there is no other
}

// Propose returns the address that the boot port of a machine will get by DHCP, or nil where it has an address, or
// where its network is not known: without a fixed address, that is where there are several networks. It writes
// nothing, and offers the address to no other port for a while.
func (l *Leases) Propose(m *trivet.Machine) (*Proposal, error) { return l.proposal(m, false) }

// Predict returns what Propose would, and notes nothing.
func (l *Leases) Predict(m *trivet.Machine) (*Proposal, error) { return l.proposal(m, true) }

func (l *Leases) proposal(m *trivet.Machine, predict bool) (*Proposal, error) {
	if len(m.Spec.NICs) == 0 {
		return nil, nil
	}
	for _, nic := range m.Spec.NICs {
		if len(l.Addresses.SharedBy(state.ByMAC, nic.MAC)) > 0 {
			return nil, nil
		}
	}
	n, only := l.networkOfPorts(m)
	if n == nil || !n.Record.Spec.Assigns() {
		return nil, nil
	}
	r := &Request{MAC: m.Spec.NICs[0].MAC, Machine: m, Network: n, predict: predict}
	a, err := l.Offer(r)
	if errors.Is(err, trivet.ErrInvalid) { // the network has no range for known machines
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("an address for machine %s: %w", m.Name, err)
	}
	return &Proposal{leases: l, request: r, address: a, only: only}, nil
}

// Network returns the name of the network of the address.
func (p *Proposal) Network() string { return p.request.Network.Record.Name }

// Address returns the address itself.
func (p *Proposal) Address() netip.Addr { return p.address }

// networkOfPorts returns the network of a machine's fixed address, or the only one that there is.
func (l *Leases) networkOfPorts(m *trivet.Machine) (n *Network, only bool) {
	if fixed := m.Spec.NICs[0].Address; fixed.IsValid() {
		return l.Network(fixed), false
	}
	for record := range l.Networks.AllShared() {
		if n != nil {
			return nil, false
		}
		n = l.Network(record.Spec.CIDR.Addr())
	}
	return n, true
}

// everywhere encloses all networks.
var everywhere = netip.PrefixFrom(netip.IPv4Unspecified(), 0).String()

// Assign writes the address's record as part of a transaction, and returns it with its network. It fails with
// ErrConflict where another port has got the address, or another network was created meanwhile.
func (p *Proposal) Assign(tx *store.Tx) (*trivet.Address, *trivet.Network, error) {
	l, r := p.leases, p.request
	n, err := l.Networks.In(tx).Get(r.Network.Record.Name)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", trivet.ErrConflict, err)
	}
	if p.only && len(l.Networks.In(tx).ListBy(state.ByEnclosing, everywhere)) != 1 {
		return nil, nil, fmt.Errorf("%w: there are several networks", trivet.ErrConflict)
	}
	_, err = l.Addresses.In(tx).Get(p.address.String())
	if err == nil || !ipam.Assignable(n, p.address) {
		return nil, nil, fmt.Errorf("%w: address %s is not free", trivet.ErrConflict, p.address)
	}
	if !errors.Is(err, trivet.ErrNotFound) {
		return nil, nil, err
	}
	for _, nic := range r.Machine.Spec.NICs {
		if has := l.Addresses.In(tx).ListBy(state.ByOwned, nic.MAC); len(has) > 0 {
			return nil, nil, fmt.Errorf("%w: machine %s has address %s", trivet.ErrConflict, r.Machine.Name, has[0].Name)
		}
	}
	record := &trivet.Address{Meta: trivet.Meta{Kind: "Address", Name: p.address.String()}}
	r.assign(record, p.address)
	return record, n, l.Addresses.In(tx).Put(record)
}
