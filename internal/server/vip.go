package server

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/hostnet"
	"github.com/trivet-project/trivet/internal/store"
)

// shared is the address of --vip; not valid if there is none.
func (c *Config) shared() netip.Prefix {
	p, _ := netip.ParsePrefix(c.VIP)
	return p
}

// vipInterface is --vip-interface, or the one that DHCP is served on.
func (c *Config) vipInterface() string {
	if c.VIPInterface == "" && len(c.DHCPInterfaces) == 1 {
		return c.DHCPInterfaces[0]
	}
	return c.VIPInterface
}

func (c *Config) validateVIP() error {
	p, err := netip.ParsePrefix(c.VIP)
	switch {
	case c.VIP == "" && c.VIPInterface == "":
		return nil
	case c.VIP == "":
		return &trivet.FieldError{Field: "--vip-interface", Problem: "needs --vip ADDRESS/LENGTH"}
	case err != nil || hostnet.Check(p) != nil:
		return &trivet.FieldError{Field: "--vip", Problem: fmt.Sprintf("is %.60q; it must be an IPv4 host's address (not its network's or broadcast address) with its network's length, such as 10.0.0.9/24", c.VIP)}
	case c.vipInterface() == "":
		return &trivet.FieldError{Field: "--vip-interface", Problem: "is missing: it cannot be told from --dhcp where the address shall be"}
	}
	return nil
}

// openVIP makes ready to share the address with the other heads. It refuses one that this box must not share, or cannot, so it
// comes before anything is begun in the data folder or asked of others. A witness shares none.
func (s *Server) openVIP(context.Context) (err error) {
	if s.cfg.VIP != "" && !s.asWitness() {
		s.vip, err = hostnet.New(hostnet.Config{Address: s.cfg.shared(), Interface: s.cfg.vipInterface(), Log: s.cfg.Log.With("part", "vip")})
	}
	return err
}

// runVIP has the shared address now and then, until ctx ends or the head is told to stop: another one has it while this one
// still serves.
func (s *Server) runVIP(ctx, told context.Context) {
	if s.vip == nil {
		return
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(told, stop)()
	s.vip.Hold = func(ctx context.Context, name string, ttl time.Duration, do func(context.Context, func() bool) error) error {
		return s.store.WithLease(ctx, name, ttl, func(ctx context.Context, l *store.Lease) error { return do(ctx, l.Held) })
	}
	s.vip.Run(ctx)
}
