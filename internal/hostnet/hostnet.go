// Package hostnet keeps one IPv4 address on one host of a group at a time, for clients that know one address only.
//
// A host has the address while it holds a lease (lease.go). The kernel has the address for a second at a time
// (address.go): a host that is dead or stopped does not refresh it, and its kernel removes it before another host
// can hold the lease. A host that runs but lost the lease removes the address itself. The new host of the address
// announces it by gratuitous ARP, more than once (arp.go).
//
// An address that this host has by other means, or that another host has, is not Trivet's: New refuses the first
// (address.go), Run does not take the second while the other host answers for it (probe.go), and neither is
// changed.
//
// No correctness depends on the address being unique: if two heads have it, both serve the same.
package hostnet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/trivet-project/trivet"
)

// Config of a VIP. All must be set.
type Config struct {
	Address   netip.Prefix // with its network's length
	Interface string
	WithLease WithLease
	Log       *slog.Logger
}

// WithLease waits for the lease of a name, which one host holds at a time, and calls do while this host holds it. do's
// context ends, and held is false, a quarter of ttl before another host can hold the lease. It returns do's
// error; one that is trivet.ErrFenced where the lease was lost.
type WithLease func(ctx context.Context, name string, ttl time.Duration,
	do func(ctx context.Context, held func() bool) error) error

// VIP is an address that hosts share: a virtual IP address.
type VIP struct {
	Config
	netlink *netlink.Handle
	arp     *arp
	held    atomic.Bool
}

// New opens what it needs of the network namespace that it is called in: an Ethernet interface in the address's
// network, and the privilege to change it. It refuses an address that this host has by other means; Run detects one
// that another host has. Only Run needs WithLease. Run or Close must follow.
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
	return v.drop() // one that a previous process has left; it also proves the privilege
}

// usable opens netlink and checks address and interface. It changes nothing.
func (v *VIP) usable() (err error) {
	if err := Check(v.Address); err != nil {
		return err
	}
	if v.netlink, err = netlink.NewHandle(); err != nil {
		return err
	}
	h, err := v.check()
	if err == nil && len(h.link.Attrs().HardwareAddr) != 6 {
		err = v.refuse(trivet.ErrInvalid, "give another --vip-interface", "interface %s is not Ethernet", v.Interface)
	}
	return err
}

// refuse returns an error with its hint.
func (v *VIP) refuse(kind error, hint, format string, args ...any) error {
	err := fmt.Errorf("%w: %s", kind, fmt.Sprintf(format, args...))
	return &trivet.Error{Op: "share address", Name: v.Address.String(), Err: err, Hint: hint}
}

// explain adds a hint to an error that has none.
func (v *VIP) explain(err error) error {
	if errors.As(err, new(*trivet.Error)) {
		return err
	}
	return &trivet.Error{Op: "share address", Name: v.Address.String(), Err: err,
		Hint: "give --vip ADDRESS/LENGTH of a network of --vip-interface, and run as root or " +
			"with CAP_NET_ADMIN and CAP_NET_RAW"}
}

// Check reports whether an address can be shared on any host.
func Check(p netip.Prefix) error {
	a := p.Addr()
	reserved := p.Bits() < 31 && (a == p.Masked().Addr() || a == last(p))
	if !p.IsValid() || !a.Is4() || !a.IsGlobalUnicast() || p.Bits() < 8 || reserved {
		return fmt.Errorf("%w: %s is not a host's IPv4 address with its network's length, such as 10.0.0.9/24",
			trivet.ErrInvalid, p)
	}
	return nil
}

// last returns a network's broadcast address.
func last(p netip.Prefix) netip.Addr {
	a := p.Addr().As4()
	host := ^uint32(0) >> p.Bits()
	binary.BigEndian.PutUint32(a[:], binary.BigEndian.Uint32(a[:])|host)
	return netip.AddrFrom4(a)
}

// Held reports whether this host has the address.
func (v *VIP) Held() bool { return v.held.Load() }

// Close removes the address if this host has it.
func (v *VIP) Close() {
	if v.netlink != nil {
		if err := v.drop(); err != nil && !errors.Is(err, trivet.ErrNotFound) && v.Held() {
			v.Log.Error("the shared address could not be removed; it expires within a second", "address", v.Address,
				"error", err)
		}
		v.netlink.Close()
	}
	if v.arp != nil {
		v.arp.close()
	}
}
