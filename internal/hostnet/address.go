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
		err = v.refuse(trivet.ErrNotFound, "give --vip-interface one of this box", "interface %q", v.Interface)
	}
	return link, err
}

// addr is the address as the kernel shall have it: for a while, and not to speak from unless asked by it. It has no network
// of its own: where the box's address in that network went and came again, it would come as a secondary one of this, and the
// kernel takes those away with their first.
func (v *VIP) addr() *netlink.Addr {
	return &netlink.Addr{
		IPNet:    &net.IPNet{IP: v.Address.Addr().AsSlice(), Mask: net.CIDRMask(32, 32)},
		ValidLft: int(lifetime / time.Second),
	}
}

// added says whether an address is one that addr gives, by this process or one before it: nobody else sets such.
func (v *VIP) added(a *netlink.Addr) bool {
	return a.Equal(*v.addr()) && a.Peer == nil && a.Flags&unix.IFA_F_PERMANENT == 0 &&
		a.ValidLft <= int(lifetime/time.Second) && a.PreferedLft == 0
}

// here is what a box has of the shared address.
type here struct {
	link     netlink.Link
	ours     bool           // the interface has it by Trivet
	others   []netlink.Addr // the same address by anybody else, on any interface: not to be touched
	networks []netip.Prefix // of the interface
}

// survey changes nothing.
func (v *VIP) survey() (h here, err error) {
	if h.link, err = v.link(); err != nil {
		return h, err
	}
	all, err := v.netlink.AddrList(nil, netlink.FAMILY_V4)
	for tries := 0; errors.Is(err, netlink.ErrDumpInterrupted) && tries < 5; tries++ { // the box's addresses changed meanwhile
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

// look is a survey that refuses an address that this box must not share.
func (v *VIP) look() (here, error) {
	h, err := v.survey()
	if err != nil {
		return h, err
	}
	if len(h.others) > 0 {
		return h, v.refuse(trivet.ErrConflict, "it stays as it is; give --vip an address of the same network that no box has",
			"this box has it already, not by Trivet: %s", v.name(&h.others[0]))
	}
	for _, n := range h.networks {
		if !n.Contains(v.Address.Addr()) || v.Address.Bits() != n.Bits() && v.Address.Bits() != 32 {
			continue
		}
		if Check(netip.PrefixFrom(v.Address.Addr(), n.Bits())) != nil { // of one with the length 32
			return h, v.refuse(trivet.ErrInvalid, "give --vip a host's address", "it is the network or broadcast address of %s", n)
		}
		return h, nil
	}
	return h, v.refuse(trivet.ErrInvalid, "give --vip a free address of one of these with its length, or another --vip-interface",
		"interface %s is not in this network; it is in %v", v.Interface, h.networks)
}

// name says where an address of this box is.
func (v *VIP) name(a *netlink.Addr) string {
	text := a.IPNet.String()
	if link, err := v.netlink.LinkByIndex(a.LinkIndex); err == nil {
		text += " on " + link.Attrs().Name
	}
	return text
}

// set gives the interface the address for another lifetime, and tells the interface's own. One that came to the box
// otherwise, since, is left alone.
func (v *VIP) set() (net.HardwareAddr, error) {
	h, err := v.look()
	if err != nil {
		return nil, err
	}
	set := v.netlink.AddrAdd // refuses one that came this moment
	if h.ours {
		set = v.netlink.AddrReplace
	}
	if err := set(h.link, v.addr()); err != nil {
		return nil, fmt.Errorf("set address on %s: %w", v.Interface, err)
	}
	return h.link.Attrs().HardwareAddr, nil
}

// drop takes the address away if it is there by Trivet.
func (v *VIP) drop() error {
	h, err := v.survey()
	if err != nil || !h.ours && len(h.others) > 0 {
		return err
	}
	if err := v.netlink.AddrDel(h.link, v.addr()); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return fmt.Errorf("take address from %s: %w", v.Interface, err)
	}
	return nil
}
