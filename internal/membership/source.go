package membership

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/limit"
	"github.com/trivet-project/trivet/internal/peer"
)

// source returns the address from which a witness calls the other heads, which refuse its calls from any other: that
// by which they reach it. It returns nil where the kernel is to choose: for a full head, and where the address is a
// name, not of this host, of loopback, or IPv6, from which the store's member cannot be made to call.
func (l *Local) source() net.Addr {
	if !l.Witness() {
		return nil
	}
	own, err := netip.ParseAddr(hostOf(l.addr.Peer))
	if err != nil || !own.Is4() || own.IsLoopback() || !isLocal(own) {
		return nil
	}
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(own, 0))
}

// isLocal reports whether this host has an address.
func isLocal(a netip.Addr) bool {
	nets, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, n := range nets {
		if p, err := netip.ParsePrefix(n.String()); err == nil && p.Addr().Unmap() == a {
			return true
		}
	}
	return false
}

// checkSource refuses a witness that calls from another address than the one that it wants to join with: its later
// calls would be refused. A request through a load balancer shows nothing.
func (s *Server) checkSource(r *http.Request, req *JoinRequest) error {
	host := hostOf(req.Peer)
	if req.Role != trivet.RoleWitness || limit.Of(r.Context()).IsShared() || new(peer.Sources).IsFrom(r, host) {
		return nil
	}
	return &trivet.Error{Op: "join", Hint: peer.HintSource + "; the token is still valid",
		Err: fmt.Errorf("%w: the new witness advertises %s, and called from %s", trivet.ErrInvalid, host, r.RemoteAddr)}
}
