package peer

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	neturl "net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/trivet-project/trivet/internal/wait"
)

// Exits notices that the process of another head has ended, before its silence shows that. However a process ends, its
// kernel closes its connections, and refuses new ones. So once all raft streams that a head had opened to this one are
// closed, its address is dialed. Only a refusal proves that the process has ended: one that is paused or overloaded
// still accepts connections, by its kernel, and a host that is cut off or down does not answer.
type Exits struct {
	heads  func() map[string]string
	ended  func(ctx context.Context, head string)
	dial   func(ctx context.Context, url string) error
	log    *slog.Logger
	closed chan string // heads whose last stream was closed

	mu      sync.Mutex
	streams map[string]int // open ones, by the head that opened them; guarded by mu
}

const (
	// streamPrefix is the path of the requests by which a member receives what another one sends.
	streamPrefix = "/raft/stream/"
	// refusalAttempts is how often a head whose streams are closed is dialed: a process that is ending closes its
	// listener and its connections one after the other, on a busy computer in seconds.
	refusalAttempts = 50
	// refusalInterval is the time between two attempts; after half of them it is ten times as long.
	refusalInterval = 10 * time.Millisecond
	// maxClosed bounds the heads that wait for their check. Further ones are not checked: their silence shows their end.
	maxClosed = 64
)

// NewExits returns one that knows no stream. heads returns the URLs of the other heads by name; ended is called by Run
// for a head whose process has ended.
func NewExits(heads func() map[string]string, ended func(ctx context.Context, head string), log *slog.Logger) *Exits {
	return &Exits{heads: heads, ended: ended, dial: dial, log: log, closed: make(chan string, maxClosed),
		streams: map[string]int{}}
}

// Add notes a request of a head's member, which was verified. Requests that are no streams are ignored.
func (e *Exits) Add(r *http.Request, head string) {
	if !strings.HasPrefix(r.URL.Path, streamPrefix) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.streams[head]++
	context.AfterFunc(r.Context(), func() { e.remove(head) }) // at the end of the request or of its connection
}

// remove notes that a stream is closed.
func (e *Exits) remove(head string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.streams[head]--; e.streams[head] > 0 {
		return
	}
	delete(e.streams, head)
	select {
	case e.closed <- head:
	default:
	}
}

// Streams returns how many streams other heads have open to this one.
func (e *Exits) Streams() (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, open := range e.streams {
		n += open
	}
	return n
}

// isOpen reports whether a head has an open stream to this one.
func (e *Exits) isOpen(head string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.streams[head] > 0
}

// Run checks heads whose streams are closed until ctx ends.
func (e *Exits) Run(ctx context.Context) {
	var checks sync.WaitGroup
	defer checks.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case head := <-e.closed:
			checks.Go(func() { e.check(ctx, head) })
		}
	}
}

// check dials a head until it is refused, which is its end, accepted for long enough, or neither. A connection that was
// begun while the listener is closed is reset, which proves nothing: the next one is refused.
func (e *Exits) check(ctx context.Context, head string) {
	for n := range refusalAttempts {
		pause := refusalInterval
		if n >= refusalAttempts/2 {
			pause *= 10
		}
		err := e.dial(ctx, e.heads()[head])
		switch {
		case e.isOpen(head) || ctx.Err() != nil:
			return
		case errors.Is(err, syscall.ECONNREFUSED):
			e.ended(ctx, head)
			return
		case err != nil && !errors.Is(err, syscall.ECONNRESET):
			e.log.Debug("the streams of a head are closed, and it cannot be dialed", "head", head, "error", err)
			return
		case wait.Sleep(ctx, pause) != nil:
			return
		}
	}
	e.log.Debug("the streams of a head are closed, and it is still accepting connections", "head", head)
}

// dial opens a connection to a head, and closes it. It fails with ECONNREFUSED only where all addresses of the head
// refuse it.
func dial(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	u, err := neturl.Parse(url)
	if err != nil {
		return err
	}
	var addrs []netip.Addr
	if addrs, err = net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname()); err != nil {
		return err
	}
	for _, a := range addrs {
		var c net.Conn
		c, err = (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(a.Unmap().String(), u.Port()))
		if err == nil {
			return c.Close()
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return err
		}
	}
	return err
}
