package api_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/api"
	"github.com/trivet-project/trivet/internal/store"
)

// unread sends a request by a connection of its own, and reads the status of the response and no more. Its kernel
// accepts few bytes.
func (h *head) unread(path string) (status int, rest *bufio.Reader) {
	h.t.Helper()
	dialer := &net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		controlErr := c.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096)
		})
		return errors.Join(controlErr, err)
	}}
	cfg := must(client.TLSConfig(h.keys.CA.Trust()))(h.t)
	cfg.NextProtos = []string{"http/1.1"}
	conn := must(tls.DialWithDialer(dialer, "tcp", strings.TrimPrefix(h.url, "https://"), cfg))(h.t)
	h.t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+h.admin+
		"\r\n\r\n"); err != nil {
		h.t.Fatal(err)
	}
	rest = bufio.NewReader(conn)
	line := must(rest.ReadString('\n'))(h.t)
	if _, err := fmt.Sscanf(line, "HTTP/1.1 %d", &status); err != nil {
		h.t.Fatalf("%q: %v", line, err)
	}
	return status, rest
}

// fillPage writes records for a whole page: 4 MiB.
func (h *head) fillPage() {
	h.t.Helper()
	for i := range 65 {
		put(h, h.fleet.Provisions, &trivet.Provision{
			Meta: trivet.Meta{Project: "default", Name: fmt.Sprintf("p%02d", i)},
			Spec: trivet.ProvisionSpec{Template: "t", Machine: "m", UserData: strings.Repeat("x", 64<<10)}})
	}
}

const wholePage = "/v1/projects/default/provisions?limit=1000"

// inUse returns the memory that is in use.
func inUse() int64 {
	var now runtime.MemStats
	runtime.GC()
	runtime.GC() // what pools held
	runtime.ReadMemStats(&now)
	return int64(now.HeapAlloc)
}

// awaitMetric waits until the metrics have a line.
func (h *head) awaitMetric(line string) {
	h.t.Helper()
	for late := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		resp := h.do(h.admin, "GET", "/metrics", "")
		text := must(io.ReadAll(resp.Body))(h.t)
		_ = resp.Body.Close()
		if strings.Contains(string(text), "\n"+line+"\n") {
			return
		}
		if time.Now().After(late) {
			h.t.Fatalf("the metrics lack %q", line)
		}
	}
}

// Clients that request pages and do not read them make the head hold no copy of the records.
func TestSlowListsHoldNoCopies(t *testing.T) {
	h := newHead(t)
	h.fillPage()
	h.unread(wholePage)
	before := inUse()
	const clients = 64
	for range clients {
		if status, _ := h.unread(wholePage); status != http.StatusOK {
			t.Fatal(status)
		}
	}
	// Each has a connection with buffers, also at the client's side.
	if used := inUse() - before; used > clients<<20 {
		t.Errorf("%d pages that no one reads use %d KiB each", clients, used>>10/clients)
	}
	if status, _ := h.ask(h.admin, "GET", wholePage, ""); status != http.StatusOK {
		t.Errorf("another client: %d", status)
	}
}

// A response that is not read in time is cut off, is counted, and gives its space back.
func TestUnreadListEnds(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	h.handler.SetUnsent(2 * api.SendBytes)
	h.handler.SetWriteTimeout(20 * time.Second)
	h.fillPage()
	_, one := h.unread(wholePage)
	_, two := h.unread(wholePage)
	resp := h.do(h.admin, "GET", wholePage, "")
	if resp.Body.Close(); resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("a list without space: %s", resp.Status)
	}
	h.awaitMetric(`trivet_api_unread_responses_total{route="GET /v1/projects/{project}/provisions"} 2`)
	for _, rest := range []*bufio.Reader{one, two} {
		if n, err := io.Copy(io.Discard, rest); err == nil || errors.Is(err, io.EOF) || n > 4<<20 {
			t.Errorf("a response that was not read in time: %d bytes, %v", n, err)
		}
	}
	if status, _ := h.ask(h.admin, "GET", wholePage, ""); status != http.StatusOK {
		t.Errorf("a list afterwards: %d", status)
	}
}

// change changes n machines of 16 KiB each, five in a transaction, round by round.
func (h *head) change(rounds, n int) {
	h.t.Helper()
	for round := range rounds {
		for i := 0; i < n; i += 5 {
			_, err := h.fleet.Store.Update(h.t.Context(), func(tx *store.Tx) (err error) {
				for j := i; j < i+5; j++ {
					m := machine(fmt.Sprintf("m%03d", j))
					m.Status.Epoch, m.Status.Reason = int64(round+1), strings.Repeat("x", 16<<10)
					err = errors.Join(err, h.fleet.Machines.In(tx).Put(m))
				}
				return err
			})
			if err != nil {
				h.t.Fatal(err)
			}
		}
	}
}

// wantChanges reads a watch and wants each change once, and those of one machine in order.
func wantChanges(t *testing.T, h *head, from int64, rounds, n int) {
	t.Helper()
	last, left := map[string]int64{}, rounds*n
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for e, err := range h.client(h.admin).Watch(ctx, client.WatchOptions{Kinds: []trivet.Kind{"Machine"}, From: from}) {
		if err != nil || e.Type != client.Put {
			t.Fatalf("%s %v, with %d changes left", e.Type, err, left)
		}
		if epoch := e.Record.(*trivet.Machine).Status.Epoch; epoch != last[e.Name]+1 {
			t.Fatalf("%s has epoch %d after %d", e.Name, epoch, last[e.Name])
		}
		last[e.Name]++
		if left--; left == 0 {
			return
		}
	}
}

// A watch whose client does not read is ended, and counted. Others get all changes.
func TestUnreadWatchEnds(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	h.handler.SetWriteTimeout(5 * time.Second)
	from := h.fleet.Store.Revision()
	_, rest := h.unread("/v1/watch?kinds=machines")
	h.change(20, 50) // 16 MiB
	wantChanges(t, h, from, 20, 50)
	h.awaitMetric(`trivet_api_unread_responses_total{route="GET /v1/watch"} 1`)
	h.awaitMetric(`trivet_api_watches 0`)
	if n, err := io.Copy(io.Discard, rest); err == nil || n > 15<<20 {
		t.Errorf("a watch that was not read in time: %d bytes, %v", n, err)
	}
}

// Watches that do not read what they resume from hold a part of it, each of its own; where they have used up the
// space, others are sent all changes in smaller parts.
func TestUnreadWatchesHoldLittle(t *testing.T) {
	first := newHead(t)
	from := first.fleet.Store.Revision()
	first.change(6, 50) // 5 MiB
	h := first.twin()   // it has no changes from before its start in memory
	h.handler.SetUnsent(1)
	path := fmt.Sprint("/v1/watch?kinds=machines&from=", from)
	h.unread(path)
	before := inUse()
	const clients = 8
	for range clients {
		_, rest := h.unread(path)
		for line := ""; line != "event: put\n"; { // it was read from etcd
			line = must(rest.ReadString('\n'))(t)
		}
	}
	if used := inUse() - before; used > clients<<20 {
		t.Errorf("%d watches that no one reads use %d KiB each", clients, used>>10/clients)
	}
	wantChanges(t, h, from, 6, 50)
}
