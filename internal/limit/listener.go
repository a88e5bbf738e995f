package limit

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
)

// Listener accepts the TCP connections of a Set; it closes those above its limits at once.
type Listener struct {
	net.Listener
	set *Set
}

// Listen limits a TCP listener.
func Listen(l net.Listener, set *Set) *Listener { return &Listener{l, set} }

// Accept returns the next connection that is within the limits.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		tcp, ok := c.(*net.TCPConn)
		if !ok {
			return c, nil
		}
		addr, _ := netip.ParseAddrPort(tcp.RemoteAddr().String())
		if e := l.set.Enter(addr.Addr(), func() { abort(tcp) }); e != nil {
			return &conn{tcp, e}, nil
		}
		abort(tcp)
	}
}

// abort closes a connection without a state that the kernel would keep.
func abort(c *net.TCPConn) {
	_ = c.SetLinger(0) // it may have been closed by its client
	_ = c.Close()
}

// conn is an accepted connection. It embeds the TCP connection for sendfile.
type conn struct {
	*net.TCPConn
	entry *Entry
}

func (c *conn) Close() error {
	c.entry.Leave()
	return c.TCPConn.Close()
}

type entryKey struct{}

// Context is for http.Server.ConnContext: requests on the connection have its entry.
func Context(ctx context.Context, c net.Conn) context.Context {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	if limited, ok := c.(*conn); ok {
		return context.WithValue(ctx, entryKey{}, limited.entry)
	}
	return ctx
}

// Of returns the entry of the connection of a request; nil if it has none.
func Of(ctx context.Context) *Entry {
	e, _ := ctx.Value(entryKey{}).(*Entry)
	return e
}

// Handler serves requests by next, and limits those that an unknown caller sends at the same time by one connection.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e := Of(r.Context())
		if !e.Begin() {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many requests at the same time", http.StatusServiceUnavailable)
			return
		}
		defer e.End()
		next.ServeHTTP(w, r)
	})
}
