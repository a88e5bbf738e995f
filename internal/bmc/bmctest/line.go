package bmctest

import (
	"errors"
	"net"
	"sync"
	"time"
)

// lineTimeout bounds the waits for a line.
const lineTimeout = 30 * time.Second

// Line is the serial line of a machine in memory: a TCP server to which ipmi_sim connects. It keeps what is typed.
type Line struct {
	listener net.Listener
	done     chan struct{}
	mu       sync.Mutex
	typed    []byte        // guarded by mu
	conn     net.Conn      // guarded by mu; nil: the BMC is not connected
	changed  chan struct{} // guarded by mu; closed and replaced when typed or conn changes
}

// NewLine returns a line for one test.
func NewLine(t TB) *Line {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	line := &Line{listener: l, done: make(chan struct{}), changed: make(chan struct{})}
	go line.serve()
	t.Cleanup(func() {
		l.Close()
		line.update(func() {
			if line.conn != nil {
				line.conn.Close()
			}
		})
		<-line.done
	})
	return line
}

// Address is for [Options.Serial].
func (l *Line) Address() string { return l.listener.Addr().String() }

func (l *Line) serve() {
	defer close(l.done)
	for {
		conn, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.update(func() { l.conn = conn })
		buf := make([]byte, 4096)
		for {
			n, err := conn.Read(buf)
			if err != nil {
				break
			}
			l.update(func() { l.typed = append(l.typed, buf[:n]...) })
		}
		conn.Close()
		l.update(func() { l.conn = nil })
	}
}

func (l *Line) update(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
	close(l.changed)
	l.changed = make(chan struct{})
}

// Write writes as the machine does. It waits some time for the BMC to be connected.
func (l *Line) Write(p []byte) (int, error) {
	late := time.After(lineTimeout)
	for {
		l.mu.Lock()
		conn, changed := l.conn, l.changed
		l.mu.Unlock()
		if conn != nil {
			return conn.Write(p)
		}
		select {
		case <-changed:
		case <-late:
			return 0, errors.New("no BMC has connected to the line")
		}
	}
}

// Typed waits some time until n characters were typed, and returns all.
func (l *Line) Typed(n int) string {
	late := time.After(lineTimeout)
	for {
		l.mu.Lock()
		typed, changed := string(l.typed), l.changed
		l.mu.Unlock()
		if len(typed) >= n {
			return typed
		}
		select {
		case <-changed:
		case <-late:
			return typed
		}
	}
}
