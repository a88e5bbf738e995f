package peer

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A head is taken for ended once all of its streams are closed and its address refuses connections.
func TestExitIsNoticed(t *testing.T) {
	t.Parallel()
	w := newExitWatch(t)
	w.heads["head1"] = "https://" + w.listen("127.7.0.1:0").stop()
	a, b := w.stream("head1"), w.stream("head1")
	a()
	w.awaitStreams("head1", 1)
	w.run()
	w.expect() // of two streams, one is open
	b()
	w.await("head1")
}

// A connection that is begun while the listener of a process that ends is closed is reset, not refused.
func TestExitWhileListenerIsClosed(t *testing.T) {
	t.Parallel()
	w := newExitWatch(t)
	w.heads["head1"] = "https://" + w.listen("127.7.0.6:0").stop()
	var attempts atomic.Int64
	w.dial = func(ctx context.Context, url string) error {
		if attempts.Add(1) == 1 {
			return &net.OpError{Op: "dial", Err: syscall.ECONNRESET}
		}
		return dial(ctx, url)
	}
	w.run()
	w.stream("head1")()
	w.await("head1")
}

// Streams that are opened and closed again are checked again.
func TestExitAfterReconnect(t *testing.T) {
	t.Parallel()
	w := newExitWatch(t)
	l := w.listen("127.7.0.2:0")
	w.heads["head1"] = "https://" + l.address
	w.run()
	w.stream("head1")()
	l.awaitAttempts(refusalAttempts)
	again := w.stream("head1")
	l.stop()
	again()
	w.await("head1")
}

// A head that accepts connections, as a paused one does, does not answer, is not known, or has another stream by then,
// is not taken for ended; nor is one whose name has another address that is not refused.
func TestNoExit(t *testing.T) {
	t.Parallel()
	w := newExitWatch(t)
	accepting := w.listen("127.7.0.3:0")
	w.heads["accepting"] = "https://" + accepting.address
	w.heads["silent"] = "https://" + silentListener(t)
	refusing := w.listen("127.7.0.4:0")
	w.heads["back"] = "https://" + refusing.stop()
	for _, head := range []string{"accepting", "silent", "unknown"} {
		w.stream(head)()
		w.awaitStreams(head, 0)
	}
	first := w.stream("back")
	first()
	w.awaitStreams("back", 0)
	w.stream("back") // stays open
	w.run()
	accepting.awaitAttempts(refusalAttempts)
	w.expect()
	if n := accepting.attempts.Load(); n != refusalAttempts {
		t.Errorf("%d attempts, want %d", n, refusalAttempts)
	}
}

// Other requests of members are no streams.
func TestExitsIgnoreMessages(t *testing.T) {
	w := newExitWatch(t)
	for _, path := range []string{"/raft", "/raft/probing", "/raft/snapshot", "/members"} {
		r := httptest.NewRequestWithContext(t.Context(), "POST", path, nil)
		if w.Add(r, "head1"); w.isOpen("head1") {
			t.Errorf("%s is taken for a stream", path)
		}
	}
}

// exitWatch is an Exits with a server that other heads open streams to.
type exitWatch struct {
	*testing.T
	*Exits
	heads  map[string]string
	server *httptest.Server
	ended  chan string
	stop   func() // ends Run and returns when it has
}

func newExitWatch(t *testing.T) *exitWatch {
	w := &exitWatch{T: t, heads: map[string]string{}, ended: make(chan string, 10)}
	w.Exits = NewExits(func() map[string]string { return w.heads },
		func(_ context.Context, head string) { w.ended <- head }, slog.New(slog.DiscardHandler))
	w.server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.Add(r, r.Header.Get("Head"))
		rw.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(rw).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(w.server.Close)
	return w
}

func (w *exitWatch) run() {
	ctx, cancel := context.WithCancel(w.Context())
	var running sync.WaitGroup
	running.Go(func() { w.Exits.Run(ctx) })
	w.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	w.Cleanup(w.stop)
}

// stream opens a stream in the name of a head, and returns what cuts its connection.
func (w *exitWatch) stream(head string) (cut func()) {
	w.Helper()
	c, err := net.Dial("tcp", w.server.Listener.Addr().String())
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { c.Close() })
	request := "GET /raft/stream/message/1 HTTP/1.1\r\nHost: x\r\nHead: " + head + "\r\n\r\n"
	if _, err := c.Write([]byte(request)); err != nil {
		w.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err != nil { // the response has begun: it was added
		w.Fatal(err)
	}
	return func() { reset(c) }
}

// awaitStreams waits until so many streams of a head are open.
func (w *exitWatch) awaitStreams(head string, n int) {
	w.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		w.mu.Lock()
		open := w.streams[head]
		w.mu.Unlock()
		if open == n {
			return
		}
	}
	w.Fatalf("not %d open streams of %s", n, head)
}

// await waits for the end of a head, which must be the first one.
func (w *exitWatch) await(head string) {
	w.Helper()
	select {
	case got := <-w.ended:
		if got != head {
			w.Errorf("the end of %s, want that of %s", got, head)
		}
	case <-time.After(time.Minute):
		w.Errorf("the end of %s is not noticed", head)
	}
}

// expect expects no end that was noticed. Checks that are under way are completed by the caller.
func (w *exitWatch) expect() {
	w.Helper()
	select {
	case got := <-w.ended:
		w.Errorf("%s is taken for ended", got)
	default:
	}
}

// countingListener accepts connections, and counts them.
type countingListener struct {
	net.Listener
	*testing.T
	address  string
	attempts atomic.Int64
}

func (w *exitWatch) listen(address string) *countingListener {
	w.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		w.Fatal(err)
	}
	c := &countingListener{Listener: l, T: w.T, address: l.Addr().String()}
	w.Cleanup(func() { l.Close() })
	go func() { // until it is closed
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
			c.attempts.Add(1)
		}
	}()
	return c
}

// stop closes the listener, so that its address refuses connections, and returns that.
func (c *countingListener) stop() string {
	c.Listener.Close()
	return c.address
}

func (c *countingListener) awaitAttempts(n int64) {
	c.Helper()
	for deadline := time.Now().Add(time.Minute); c.attempts.Load() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			c.Fatalf("%d attempts, want %d", c.attempts.Load(), n)
		}
	}
}

// silentListener returns an address that neither accepts connections nor refuses them, as that of a host that is cut
// off: its queue is full.
func silentListener(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 7, 0, 5}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := net.TCPAddr{IP: net.IPv4(127, 7, 0, 5), Port: name.(*unix.SockaddrInet4).Port}
	for { // until its queue is full
		c, err := net.DialTimeout("tcp", address.String(), 200*time.Millisecond)
		if err != nil {
			return address.String()
		}
		t.Cleanup(func() { c.Close() })
	}
}
