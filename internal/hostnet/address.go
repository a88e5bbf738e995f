package hostnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
)

func (v *VIP) link() (netlink.Link, error) {
	link, err := v.netlink.LinkByName(v.Interface)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		err = v.refuse(trivet.ErrNotFound, "give --vip-interface an interface of this host", "interface %q",
			v.Interface)
	}
	return link, err
}

// addr returns the address as the kernel must have it: with a lifetime, and deprecated, so that it is no default
// source address. Its length is 32: otherwise the host's own address of the network, removed and added again, would
// become a secondary address of this one, and the kernel removes those with their primary.
func (v *VIP) addr() *netlink.Addr {
	return &netlink.Addr{
		IPNet:    &net.IPNet{IP: v.Address.Addr().AsSlice(), Mask: net.CIDRMask(32, 32)},
		ValidLft: int(lifetime / time.Second),
	}
}

// added reports whether an address was set by this process or a previous one: no other program sets such.
func (v *VIP) added(a *netlink.Addr) bool {
	return a.Equal(*v.addr()) && a.Peer == nil && a.Flags&unix.IFA_F_PERMANENT == 0 &&
		a.ValidLft <= int(lifetime/time.Second) && a.PreferedLft == 0
}

// survey is what this host has of the shared address.
type survey struct {
	link     netlink.Link
	ours     bool           // Trivet set it on the interface
	others   []netlink.Addr // the same address, set by another program on any interface: never changed
	networks []netip.Prefix // of the interface
}

// survey reads the host's addresses. It changes nothing.
func (v *VIP) survey() (h survey, err error) {
	if h.link, err = v.link(); err != nil {
		return h, err
	}
	all, err := v.netlink.AddrList(nil, netlink.FAMILY_V4)
	// the addresses changed meanwhile
	for tries := 0; errors.Is(err, netlink.ErrDumpInterrupted) && tries < 5; tries++ {
		all, err = v.netlink.AddrList(nil, netlink.FAMILY_V4)
	}
	if err != nil {
		return h, fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range all {
		inside := a.LinkIndex == h.link.Attrs().Index
		switch {
		case a.IP.Equal(v.Address.Addr().AsSlice()) && v.added(&a):
			h.ours = h.ours || inside
		case a.IP.Equal(v.Address.Addr().AsSlice()):
			h.others = append(h.others, a)
		case inside:
			h.networks = append(h.networks, networkOf(&a))
		}
	}
	return h, nil
}

func networkOf(a *netlink.Addr) netip.Prefix {
	n := a.IPNet
	if a.Peer != nil {
		n = a.Peer
	}
	ip, _ := netip.AddrFromSlice(n.IP.To4())
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(ip, bits).Masked()
}

// check is a survey that refuses an address which this host must not share.
func (v *VIP) check() (survey, error) {
	h, err := v.survey()
	if err != nil {
		return h, err
	}
	if len(h.others) > 0 {
		return h, v.refuse(trivet.ErrConflict, "give --vip an address of the same network that no host has",
			"this host has it by other means: %s", v.describe(&h.others[0]))
	}
	for _, n := range h.networks {
		if !n.Contains(v.Address.Addr()) || v.Address.Bits() != n.Bits() && v.Address.Bits() != 32 {
			continue
		}
		if Check(netip.PrefixFrom(v.Address.Addr(), n.Bits())) != nil { // with the length 32
			return h, v.refuse(trivet.ErrInvalid, "give --vip a host's address",
				"it is the network or broadcast address of %s", n)
		}
		return h, nil
	}
	return h, v.refuse(trivet.ErrInvalid, "give --vip a free address of one of these with its "+
		"length, or another --vip-interface",
		"interface %s is not in this network; it is in %v", v.Interface, h.networks)
}

// describe returns an address with its interface.
func (v *VIP) describe(a *netlink.Addr) string {
	text := a.IPNet.String()
	if link, err := v.netlink.LinkByIndex(a.LinkIndex); err == nil {
		text += " on " + link.Attrs().Name
	}
	return text
}

// set sets the address on the interface for another lifetime, and returns the interface's MAC. It fails where
// another program has set the address meanwhile.
func (v *VIP) set() (net.HardwareAddr, error) {
	h, err := v.check()
	if err != nil {
		return nil, err
	}
	set := v.netlink.AddrAdd // fails if the address was added this moment
	if h.ours {
		set = v.netlink.AddrReplace
	}
	if err := set(h.link, v.addr()); err != nil {
		return nil, fmt.Errorf("set address on %s: %w", v.Interface, err)
	}
	return h.link.Attrs().HardwareAddr, nil
}

// drop removes the address if Trivet set it.
func (v *VIP) drop() error {
	h, err := v.survey()
	if err != nil || !h.ours && len(h.others) > 0 {
		return err
	}
	if err := v.netlink.AddrDel(h.link, v.addr()); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return fmt.Errorf("remove address from %s: %w", v.Interface, err)
	}
	return nil
}
