// Package vip keeps one IPv4 address on one of the heads at a time, for machines and people who know one address only.
//
// A head holds the address while it holds a lease in the store (hold.go). The kernel has the address for a second at a
// time (address.go): a head that is dead or stopped does not refresh it, and the kernel drops it before another head may
// hold the lease. A head that lives but lost the lease takes the address away itself. Who gets the address tells all on the
// network so by gratuitous ARP, more than once (arp.go).
//
// Nothing rests on the address being in one place: should two heads ever have it, both serve the same.
package vip

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync/atomic"

	"github.com/vishvananda/netlink"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// Config of a VIP. All must be set.
type Config struct {
	Address   netip.Prefix // with its network's length
	Interface string
	Store     *store.Store
	Log       *slog.Logger
}

// VIP is one address that heads share.
type VIP struct {
	Config
	netlink *netlink.Handle
	arp     *arp
	held    atomic.Bool
}

// New takes what it needs of the network namespace that it is called in: the interface must be there, and the right to
// change it. Run or Close must follow.
func New(c Config) (*VIP, error) {
	v := &VIP{Config: c}
	if err := v.open(); err != nil {
		v.Close()
		return nil, &trivet.Error{Op: "share address", Name: c.Address.String(), Err: err,
			Hint: "give --vip ADDRESS/LENGTH of a network that --vip-interface is in, and run as root or with CAP_NET_ADMIN and CAP_NET_RAW"}
	}
	return v, nil
}

func (v *VIP) open() (err error) {
	if err := Check(v.Address); err != nil {
		return err
	}
	if v.netlink, err = netlink.NewHandle(); err != nil {
		return err
	}
	if v.arp, err = openARP(); err != nil {
		return err
	}
	link, err := v.link()
	if err != nil {
		return err
	}
	if len(link.Attrs().HardwareAddr) != 6 {
		return fmt.Errorf("%w: interface %s is not Ethernet", trivet.ErrInvalid, v.Interface)
	}
	return v.drop() // one that a former process has left, and proof that this one may
}

// Check says whether an address can be shared.
func Check(p netip.Prefix) error {
	a := p.Addr()
	if !p.IsValid() || !a.Is4() || !a.IsGlobalUnicast() || p.Bits() < 8 || p.Bits() < 31 && a == p.Masked().Addr() {
		return fmt.Errorf("%w: %s is not an IPv4 host's address with its network's length, such as 10.0.0.9/24", trivet.ErrInvalid, p)
	}
	return nil
}

// Held says whether this head has the address.
func (v *VIP) Held() bool { return v.held.Load() }

// Close takes the address away if it is here.
func (v *VIP) Close() {
	if v.netlink != nil {
		if err := v.drop(); err != nil && !errors.Is(err, trivet.ErrNotFound) && v.Held() {
			v.Log.Error("the shared address stays for a second", "address", v.Address, "error", err)
		}
		v.netlink.Close()
	}
	if v.arp != nil {
		v.arp.close()
	}
}
