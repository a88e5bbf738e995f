// Package hostnet keeps one IPv4 address on one of the heads at a time, for machines and people who know one address only.
//
// A head holds the address while it holds a lease in the store (hold.go). The kernel has the address for a second at a
// time (address.go): a head that is dead or stopped does not refresh it, and the kernel drops it before another head may
// hold the lease. A head that lives but lost the lease takes the address away itself. Who gets the address tells all on the
// network so by gratuitous ARP, more than once (arp.go).
//
// An address that the box or another host has already is not Trivet's: it is refused at the start (address.go), not taken
// while another host answers for it (probe.go), and never changed.
//
// Nothing rests on the address being in one place: should two heads ever have it, both serve the same.
package hostnet

import (
	"encoding/binary"
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

// New takes what it needs of the network namespace that it is called in: an Ethernet interface in the address's network, and
// the right to change it. It refuses an address that anybody but Trivet has set on this box; another host may have it, which
// Run finds. Run needs the Store. Run or Close must follow.
func New(c Config) (*VIP, error) {
	v := &VIP{Config: c}
	if err := v.open(); err != nil {
		v.Close()
		return nil, v.explain(err)
	}
	return v, nil
}

func (v *VIP) open() (err error) {
	if err := v.usable(); err != nil {
		return err
	}
	if v.arp, err = openARP(); err != nil {
		return err
	}
	return v.drop() // one that a former process has left, and proof that this one may
}

// usable opens netlink, and changes nothing.
func (v *VIP) usable() (err error) {
	if err := Check(v.Address); err != nil {
		return err
	}
	if v.netlink, err = netlink.NewHandle(); err != nil {
		return err
	}
	h, err := v.look()
	if err == nil && len(h.link.Attrs().HardwareAddr) != 6 {
		err = v.refuse(trivet.ErrInvalid, "give another --vip-interface", "interface %s is not Ethernet", v.Interface)
	}
	return err
}

// refuse says why the address cannot be had, and what to do.
func (v *VIP) refuse(kind error, hint, format string, args ...any) error {
	return &trivet.Error{Op: "share address", Name: v.Address.String(), Err: fmt.Errorf("%w: %s", kind, fmt.Sprintf(format, args...)), Hint: hint}
}

// explain adds the next step where there is none.
func (v *VIP) explain(err error) error {
	if errors.As(err, new(*trivet.Error)) {
		return err
	}
	return &trivet.Error{Op: "share address", Name: v.Address.String(), Err: err,
		Hint: "give --vip ADDRESS/LENGTH of a network that --vip-interface is in, and run as root or with CAP_NET_ADMIN and CAP_NET_RAW"}
}

// Check says whether an address can be shared at all, on some box.
func Check(p netip.Prefix) error {
	a := p.Addr()
	if !p.IsValid() || !a.Is4() || !a.IsGlobalUnicast() || p.Bits() < 8 || p.Bits() < 31 && (a == p.Masked().Addr() || a == last(p)) {
		return fmt.Errorf("%w: %s is not an IPv4 host's address with its network's length, such as 10.0.0.9/24", trivet.ErrInvalid, p)
	}
	return nil
}

// last is a network's broadcast address.
func last(p netip.Prefix) netip.Addr {
	a := p.Addr().As4()
	host := ^uint32(0) >> p.Bits()
	binary.BigEndian.PutUint32(a[:], binary.BigEndian.Uint32(a[:])|host)
	return netip.AddrFrom4(a)
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
