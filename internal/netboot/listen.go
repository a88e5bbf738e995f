package netboot

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// listener accepts, at one port, connections of plain HTTP and those that begin with a TLS handshake. The first byte
// of a client says which: none of HTTP is that of a handshake.
type listener struct {
	net.Listener
	server   *Server
	accepted chan accepted
	closed   chan struct{}
	close    func() error
}

// accepted is a result of Accept: a connection is a *tls.Conn after its handshake, or one of the wrapped listener.
type accepted struct {
	conn net.Conn
	err  error
}

// Listen makes the boot server's port accept TLS, too, where it is configured.
func (s *Server) Listen(l net.Listener) net.Listener {
	if s.TLS == nil {
		return l
	}
	t := &listener{Listener: l, server: s, accepted: make(chan accepted), closed: make(chan struct{})}
	t.close = sync.OnceValue(func() error {
		close(t.closed)
		return l.Close()
	})
	go t.run() // until Close
	return t
}

func (t *listener) Close() error { return t.close() }

// Accept returns the next connection that has begun.
func (t *listener) Accept() (net.Conn, error) {
	select {
	case a := <-t.accepted:
		return a.conn, a.err
	case <-t.closed:
		return nil, net.ErrClosed
	}
}

func (t *listener) run() {
	for {
		conn, err := t.Listener.Accept()
		if err == nil {
			go t.begin(conn)
			continue
		}
		if !t.pass(accepted{err: err}) || errors.Is(err, net.ErrClosed) {
			return
		}
	}
}

// pass passes a result to Accept; it returns false if there will be no call of it.
func (t *listener) pass(a accepted) bool {
	select {
	case t.accepted <- a:
		return true
	case <-t.closed:
		return false
	}
}

// begin waits for the first byte of a client, and completes its handshake.
func (t *listener) begin(conn net.Conn) {
	_ = conn.SetDeadline(time.Now().Add(headerTime))
	first, err := firstByte(conn)
	if err == nil && first == tlsHandshake {
		conn, err = t.server.handshake(conn)
	}
	if err == nil {
		_ = conn.SetDeadline(time.Time{})
	}
	if err != nil || !t.pass(accepted{conn: conn}) {
		_ = conn.Close()
	}
}

// tlsHandshake is the type of a TLS record that begins a connection (RFC 8446 section 5.1).
const tlsHandshake = 22

// firstByte returns the first byte that a client sent, which remains to be read: so the connection needs no wrapper,
// and files are sent by the kernel.
func firstByte(conn net.Conn) (byte, error) {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return 0, errors.ErrUnsupported
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var first [1]byte
	var n int
	if e := raw.Read(func(fd uintptr) bool {
		n, _, err = unix.Recvfrom(int(fd), first[:], unix.MSG_PEEK)
		return err != unix.EAGAIN && err != unix.EINTR
	}); e != nil {
		return 0, e
	}
	if err == nil && n == 0 {
		err = net.ErrClosed
	}
	return first[0], err
}

// handshake completes the handshake of a host in a network of the site, within the rate of its address.
func (s *Server) handshake(conn net.Conn) (net.Conn, error) {
	from, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
	peer := from.Addr().Unmap()
	if !s.Leases.Serves(peer) || !s.Handshakes.Allow(peer) {
		s.metrics.handshakes.WithLabelValues("refused").Inc()
		return conn, errHandshake
	}
	secure := tls.Server(conn, s.TLS)
	ctx, cancel := context.WithTimeout(context.Background(), headerTime)
	defer cancel()
	if err := secure.HandshakeContext(ctx); err != nil {
		s.metrics.handshakes.WithLabelValues("failed").Inc()
		s.warn("a TLS handshake with a machine failed; its firmware may not have the boot CA enrolled: see trivet ca",
			"from", peer, "error", err)
		return conn, err
	}
	s.metrics.handshakes.WithLabelValues("completed").Inc()
	return secure, nil
}

var errHandshake = errors.New("no handshake with this host")
