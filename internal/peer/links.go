package peer

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	neturl "net/url"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Links are the connections that members of the store have opened to this head. While the network is cut, TCP waits
// longer and longer before it sends again, and the members at both ends wait with it: as long again as the cut, after
// it has ended. So once a head that was silent can be reached again, its connections are reset, and it opens others at
// once. The head that has accepted a connection does so; those that this head has opened are reset by the others.
type Links struct {
	log   *slog.Logger
	heads func() map[string]string

	mu    sync.Mutex
	conns map[net.Conn]string // the head that opened it; guarded by mu
}

const (
	// silence is how long a head acknowledges nothing until its connections are to be reset. The retransmissions of a
	// shorter silence are less than this apart.
	silence = 2 * time.Second
	// linkInterval is the time between two checks, and between two attempts to reach a silent head.
	linkInterval = 250 * time.Millisecond
	// reachTimeout bounds one attempt. The kernel sends the first packet again after a second.
	reachTimeout = 1200 * time.Millisecond
)

// NewLinks returns an empty set. heads returns the URLs of the other heads by name.
func NewLinks(heads func() map[string]string, log *slog.Logger) *Links {
	return &Links{log: log, heads: heads, conns: map[net.Conn]string{}}
}

type connKey struct{}

// WithConn makes a connection known to the requests on it, for http.Server.ConnContext.
func WithConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// Add notes that the connection of a request is one of a head's member.
func (l *Links) Add(r *http.Request, head string) {
	if c, ok := r.Context().Value(connKey{}).(net.Conn); ok {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.conns[c] = head
	}
}

// ConnState is for http.Server.
func (l *Links) ConnState(c net.Conn, state http.ConnState) {
	if state == http.StateClosed || state == http.StateHijacked {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.conns, c)
	}
}

// Run resets connections until ctx ends.
func (l *Links) Run(ctx context.Context) {
	var attempts sync.WaitGroup
	defer attempts.Wait()
	running := map[string]chan struct{}{} // attempts, by head
	tick := time.NewTicker(linkInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for head, conns := range l.silent() {
			done, ok := running[head]
			if ok && !isClosed(done) {
				continue
			}
			done = make(chan struct{})
			running[head] = done
			attempts.Go(func() { defer close(done); l.resetIfReached(ctx, head, conns) })
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// silent returns the connections of the heads that have acknowledged nothing for too long.
func (l *Links) silent() map[string][]net.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	all, silent := map[string][]net.Conn{}, map[string][]net.Conn{}
	for c, head := range l.conns {
		all[head] = append(all[head], c)
		if isSilent(c) {
			silent[head] = nil
		}
	}
	for head := range silent {
		silent[head] = all[head]
	}
	return silent
}

// resetIfReached resets the connections if a new one can be opened to their head.
func (l *Links) resetIfReached(ctx context.Context, head string, conns []net.Conn) {
	url, err := neturl.Parse(l.heads()[head])
	if err != nil || url.Host == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", url.Host)
	if err != nil {
		return
	}
	_ = c.Close()
	l.log.Info("a head can be reached again; resetting its connections", "head", head, "connections", len(conns))
	for _, c := range conns {
		reset(c)
	}
}

// reset closes a connection so that its other end learns it at once.
func reset(c net.Conn) {
	if secure, ok := c.(*tls.Conn); ok { // a message for its other end would wait behind what is not acknowledged
		c = secure.NetConn()
	}
	if tcp, ok := c.(interface{ SetLinger(sec int) error }); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// isSilent reports whether something that was sent is not acknowledged, and nothing was acknowledged for too long.
func isSilent(c net.Conn) (silent bool) {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	sock, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sock.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		silent = err == nil && info.Unacked > 0 && time.Duration(info.Last_ack_recv)*time.Millisecond >= silence
	})
	return silent
}
