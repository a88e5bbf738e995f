package vip

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
)

func (v *VIP) link() (netlink.Link, error) {
	link, err := v.netlink.LinkByName(v.Interface)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		err = fmt.Errorf("%w: interface %q", trivet.ErrNotFound, v.Interface)
	}
	return link, err
}

// addr is the address as the kernel shall have it: for a while, and not to speak from unless asked by it.
func (v *VIP) addr() *netlink.Addr {
	return &netlink.Addr{
		IPNet:    &net.IPNet{IP: v.Address.Addr().AsSlice(), Mask: net.CIDRMask(v.Address.Bits(), 32)},
		ValidLft: int(lifetime / time.Second),
	}
}

// set gives the interface the address for another lifetime, and tells the interface's own.
func (v *VIP) set() (net.HardwareAddr, error) {
	link, err := v.link()
	if err != nil {
		return nil, err
	}
	if err := v.netlink.AddrReplace(link, v.addr()); err != nil {
		return nil, fmt.Errorf("set address on %s: %w", v.Interface, err)
	}
	return link.Attrs().HardwareAddr, nil
}

// drop takes the address away if it is there.
func (v *VIP) drop() error {
	link, err := v.link()
	if err != nil {
		return err
	}
	if err := v.netlink.AddrDel(link, v.addr()); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return fmt.Errorf("take address from %s: %w", v.Interface, err)
	}
	return nil
}
