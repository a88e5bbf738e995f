package vm

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// qmp is a client of QEMU's monitor (docs/interop/qmp-spec of QEMU). It sends one command at a time, and of the events
// it only counts resets.
type qmp struct {
	mu     sync.Mutex
	conn   net.Conn // guarded by mu, as all below
	lines  *bufio.Scanner
	resets int // until the last command
}

// qmpPair creates the two ends of a monitor: a client, and a file for QEMU to inherit.
func qmpPair() (*qmp, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("create monitor: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "qmp"), os.NewFile(uintptr(fds[1]), "qmp")
	conn, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		theirs.Close()
		return nil, nil, fmt.Errorf("create monitor: %w", err)
	}
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, 1<<20)
	return &qmp{conn: conn, lines: lines}, theirs, nil
}

// negotiate completes the negotiation of capabilities that a monitor begins with.
func (q *qmp) negotiate(ctx context.Context) error { return q.run(ctx, "qmp_capabilities", nil, nil) }

type qmpReply struct {
	Event  string          `json:"event"`
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Class string `json:"class"`
		Desc  string `json:"desc"`
	} `json:"error"`
}

// run sends a command and decodes its response into result, which may be nil.
func (q *qmp) run(ctx context.Context, command string, args, result any) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { _ = q.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	msg := map[string]any{"execute": command}
	if args != nil {
		msg["arguments"] = args
	}
	if err := json.NewEncoder(q.conn).Encode(msg); err != nil {
		return fmt.Errorf("monitor: %s: %w", command, err)
	}
	for q.lines.Scan() {
		var reply qmpReply
		if err := json.Unmarshal(q.lines.Bytes(), &reply); err != nil {
			return fmt.Errorf("monitor: %s: %w", command, err)
		}
		switch {
		case reply.Error != nil:
			return fmt.Errorf("monitor: %s: %s", command, reply.Error.Desc)
		case reply.Return != nil && result != nil:
			return json.Unmarshal(reply.Return, result)
		case reply.Return != nil:
			return nil
		case reply.Event == "RESET":
			q.resets++
		} // otherwise the banner, or another event
	}
	return fmt.Errorf("monitor: %s: no response: %w", command, errOff)
}

// countResets returns how often the machine was reset: by its monitor, by itself or by its firmware.
func (q *qmp) countResets(ctx context.Context) (int, error) {
	err := q.run(ctx, "query-status", nil, nil) // QEMU sends the events of before first
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.resets, err
}

func (q *qmp) close() { _ = q.conn.Close() }
