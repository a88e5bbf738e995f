package peer

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
)

// Sources verifies from where members call. Its zero value is ready, and safe for concurrent use.
type Sources struct {
	lookup func(ctx context.Context, network, host string) ([]netip.Addr, error) // nil: by the host's resolver

	mu    sync.Mutex
	named map[string]resolved // guarded by mu; by the names that witnesses have in their certificates
}

// resolved is the addresses of a name.
type resolved struct {
	addrs []netip.Addr // the last known
	at    time.Time    // of the last attempt
}

const (
	// lookupTimeout bounds the lookup of a name.
	lookupTimeout = 2 * time.Second
	// lookupInterval is how long the result of a lookup is used.
	lookupInterval = time.Minute
)

// Verify returns ErrUnauthenticated for a request of a witness from another address than that in its certificate, by
// which it joined. A full head, which has the cluster's keys, may call from any address. A loopback address is of this
// host, whichever it is.
func (s *Sources) Verify(r *http.Request, p auth.Peer) error {
	if p.Role != auth.PeerWitness || s.IsFrom(r, p.Host) {
		return nil
	}
	return &trivet.Error{Op: "verify address", Kind: "Head", Name: p.Name, Hint: HintSource,
		Err: fmt.Errorf("%w: a witness that joined as %s called from %s", trivet.ErrUnauthenticated, p.Host,
			r.RemoteAddr)}
}

// HintSource is the hint where a witness calls from another address than its own.
const HintSource = "a witness must call from the address that it advertises: see --advertise, the routes of its " +
	"host, and gateways that change addresses"

// IsFrom reports whether a request came from a host, given by its address or name.
func (s *Sources) IsFrom(r *http.Request, host string) bool {
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	from := remote.Addr().Unmap().WithZone("")
	return slices.ContainsFunc(s.addresses(r.Context(), host), func(own netip.Addr) bool {
		return own == from || own.IsLoopback() && from.IsLoopback()
	})
}

// addresses returns the addresses of the host in a certificate. While a name cannot be resolved, its last known
// addresses are used.
func (s *Sources) addresses(ctx context.Context, host string) []netip.Addr {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a.Unmap().WithZone("")}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.named[host]
	if time.Since(known.at) < lookupInterval {
		return known.addrs
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTimeout)
	defer cancel()
	lookup := s.lookup
	if lookup == nil {
		lookup = net.DefaultResolver.LookupNetIP
	}
	if found, err := lookup(ctx, "ip", host); err == nil {
		known.addrs = nil
		for _, a := range found {
			known.addrs = append(known.addrs, a.Unmap().WithZone(""))
		}
	}
	if s.named == nil {
		s.named = map[string]resolved{}
	}
	known.at = time.Now()
	s.named[host] = known
	return known.addrs
}
