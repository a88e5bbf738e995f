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

// qmp is a client of QEMU's monitor (its docs/interop/qmp-spec). Commands are sent one at a time; events are dropped.
type qmp struct {
	mu sync.Mutex
	// guards following
	conn  net.Conn
	lines *bufio.Scanner
}

// qmpPair makes the two ends of a monitor: one for us, one for QEMU to inherit.
func qmpPair() (*qmp, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make monitor: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "qmp"), os.NewFile(uintptr(fds[1]), "qmp")
	conn, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		theirs.Close()
		return nil, nil, fmt.Errorf("make monitor: %w", err)
	}
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, 1<<20)
	return &qmp{conn: conn, lines: lines}, theirs, nil
}

// greet ends the negotiation that a monitor begins with.
func (q *qmp) greet(ctx context.Context) error { return q.run(ctx, "qmp_capabilities", nil, nil) }

type qmpReply struct {
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Class string `json:"class"`
		Desc  string `json:"desc"`
	} `json:"error"`
}

// run sends a command and decodes its answer into result, which may be nil.
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
		} // else the greeting, or an event
	}
	return fmt.Errorf("monitor: %s: no answer: %w", command, errOff)
}

func (q *qmp) close() { _ = q.conn.Close() }
