package netboot

import (
	"fmt"
	"net/http"

	"github.com/trivet-project/trivet"
)

// served passes on the requests of hosts in the networks of the site.
func (s *Server) served(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if peer := peerOf(r); !s.Leases.Serves(peer) {
			s.fail(w, r, fmt.Errorf("%w: %s is in no network of this site", trivet.ErrForbidden, peer))
			return
		}
		next(w, r)
	}
}

// proxyHeaders are added by HTTP proxies. The sender of such a request is not the machine.
var proxyHeaders = []string{"Forwarded", "Via", "X-Forwarded-For", "X-Real-Ip"}

// bootingHost returns the port that a request is from. It refuses a host that does not have the port's address: it
// stops a machine that uses its own address, not one that forges another's (docs/security.md).
func (s *Server) bootingHost(mac string, r *http.Request) (host, error) {
	for _, name := range proxyHeaders {
		if r.Header.Get(name) != "" {
			return host{}, fmt.Errorf("%w: the request came through a proxy (%s); machines must reach the heads "+
				"directly", trivet.ErrForbidden, name)
		}
	}
	h, peer := s.host(mac), peerOf(r)
	err := s.Leases.CheckHolder(mac, h.machine, peer)
	if err == nil || !s.writable() || !s.refreshes.Allow() {
		return h, err
	}
	// Another head may have assigned the address a moment ago.
	if s.Store.Sync(r.Context()) != nil {
		return h, err
	}
	h = s.host(mac)
	return h, s.Leases.CheckHolder(mac, h.machine, peer)
}
