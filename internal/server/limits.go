package server

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"syscall"
	"time"

	"golang.org/x/time/rate"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/limit"
	"github.com/trivet-project/trivet/internal/state"
)

// DefaultPerAddress is how many connections an unknown caller may have.
const DefaultPerAddress = 64

// knownFactor is how many times as many connections a recognised caller may have.
const knownFactor = 16

// The handshakes that an unknown address may begin, in parts of the connections that it may have: with the default, 256
// at once, as when agents behind one address lose their head, and 16 a second; and what an address with recognised
// callers may, in parts of that.
const (
	handshakeBurst = 4
	handshakeRate  = 0.25
	handshakeKnown = 64
)

// newHandshakes returns the rate of the TLS handshakes of a port.
func newHandshakes(perAddress int) *limit.Rate {
	return limit.NewRate(handshakeRate*float64(perAddress), handshakeBurst*perAddress, handshakeKnown)
}

// portLimits are the limits of the ports: each connection of the boot port and each transfer of TFTP needs a second
// file.
type portLimits struct{ api, boot, tftp limit.Limits }

// neededFiles is how many open files the limits below need in full.
const neededFiles = 36 << 10

// newLimits returns the limits for a process that may open so many files. What it does not need for itself is for its
// callers.
func newLimits(files uint64, perAddress int) portLimits {
	share := func(n int) int { return n }
	if files < neededFiles {
		own := 256 + files/8
		left := max(files, own) - own
		share = func(n int) int { return max(n*int(left)/neededFiles, 8) }
	}
	return portLimits{
		api: limit.Limits{Known: share(16 << 10), Unknown: share(1 << 10),
			PerAddress: perAddress, KnownPerAddress: perAddress * knownFactor},
		boot: limit.Limits{Known: share(4 << 10), Unknown: share(2 << 10), KeepBusy: true,
			PerAddress: perAddress, KnownPerAddress: perAddress * knownFactor},
		tftp: limit.Limits{Known: share(1 << 10), Unknown: share(512), PerAddress: 16, KnownPerAddress: 64},
	}
}

// openLimits creates the sets of the ports.
func (s *Server) openLimits(context.Context) error {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return fmt.Errorf("read the limit of open files: %w", err)
	}
	if files.Cur < neededFiles {
		s.cfg.Log.Warn("the limit of open files is low: this head accepts fewer connections; raise it, as by "+
			"LimitNOFILE of systemd", "files", files.Cur, "needed", neededFiles)
	}
	perAddress := cmp.Or(s.cfg.PerAddress, DefaultPerAddress)
	l := newLimits(files.Cur, perAddress)
	l.api.Rate = newHandshakes(perAddress)
	l.api.Class, l.boot.Class, l.tftp.Class = s.classOf(s.isHead), s.classOf(s.isMachine), s.classOf(s.isMachine)
	l.api.Exceeded, l.boot.Exceeded = s.warnOfLimit("--api"), s.warnOfLimit("--boot")
	s.limits = ports{limit.NewSet(l.api), limit.NewSet(l.boot), limit.NewSet(l.tftp)}
	s.limits.api.Register(s.metrics, "api")
	s.limits.boot.Register(s.metrics, "boot")
	s.limits.tftp.Register(s.metrics, "tftp")
	return nil
}

// warnOfLimit returns a function that logs, at most once a minute, that the limit of a port was reached.
func (s *Server) warnOfLimit(port string) func(netip.Addr) {
	warnings := rate.Sometimes{Interval: time.Minute}
	return func(a netip.Addr) {
		warnings.Do(func() {
			s.cfg.Log.Warn("too many connections: closing new ones, or those that wait; if the address is that of a load "+
				"balancer or NAT gateway, list it in --shared-addresses", "port", port, "from", a)
		})
	}
}

// ports are what callers hold at each port.
type ports struct{ api, boot, tftp *limit.Set }

// classOf returns the class of addresses, of which some are trusted.
func (s *Server) classOf(trusted func(netip.Addr) bool) func(netip.Addr) limit.Class {
	return func(a netip.Addr) limit.Class {
		for _, p := range s.cfg.Shared {
			if p.Contains(a) {
				return limit.Shared
			}
		}
		if s.started.Load() && trusted(a) {
			return limit.Trusted
		}
		return limit.Anyone
	}
}

// isHead reports whether another head has an address.
func (s *Server) isHead(a netip.Addr) bool {
	if s.heads == nil {
		return false
	}
	_, ok := s.heads.Get()[a]
	return ok
}

// isMachine reports whether a known machine has an address.
func (s *Server) isMachine(a netip.Addr) bool { return s.netboot != nil && s.netboot.Known(a) }

// headAddresses is a view of the addresses of all heads.
type headAddresses = state.View[trivet.Head, map[netip.Addr]struct{}]

func addressesOf(heads []*trivet.Head) map[netip.Addr]struct{} {
	all := map[netip.Addr]struct{}{}
	for _, h := range heads {
		u, err := url.Parse(h.Status.Peer)
		if err != nil || h.Status.State == trivet.HeadRemoved {
			continue
		}
		if a, err := netip.ParseAddr(u.Hostname()); err == nil {
			all[a.Unmap()] = struct{}{}
		}
	}
	return all
}
