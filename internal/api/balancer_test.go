package api_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// balancer is a plain L4 balancer: each connection goes to the next head, whichever client it is from.
type balancer struct {
	url   string
	heads []*head

	mu   sync.Mutex
	next int        // guarded by mu
	open []net.Conn // guarded by mu
}

func newBalancer(t *testing.T, heads ...*head) *balancer {
	t.Helper()
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	b := &balancer{url: "https://" + l.Addr().String(), heads: heads}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", b.pick())
			if err != nil {
				c.Close()
				continue
			}
			b.keep(c, to)
			running.Go(func() { io.Copy(to, c); to.Close(); c.Close() })
			running.Go(func() { io.Copy(c, to); to.Close(); c.Close() })
		}
	})
	t.Cleanup(func() { l.Close(); b.cut(); running.Wait() })
	return b
}

func (b *balancer) pick() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next++
	return strings.TrimPrefix(b.heads[b.next%len(b.heads)].url, "https://")
}

func (b *balancer) keep(conns ...net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open = append(b.open, conns...)
}

// cut breaks all connections, so that every client reconnects to another head.
func (b *balancer) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.open {
		c.Close()
	}
	b.open = nil
}

// A program and an agent that know only a balancer, and learn heads that they cannot reach, read their own writes, miss
// nothing of a watch and run each action once, though their connections break again and again.
func TestThroughABalancer(t *testing.T) {
	t.Parallel()
	a := newAgent(t)
	a.quick()
	b := newBalancer(t, a.head, a.twin())
	for i := range 2 { // TEST-NET-1: nothing answers there
		name := fmt.Sprintf("head%d", i)
		put(a.head, a.fleet.Heads, &trivet.Head{Meta: trivet.Meta{Name: name},
			Status: trivet.HeadStatus{API: []string{fmt.Sprintf("https://192.0.2.%d:7480", i)}}})
	}
	cl := must(client.New(client.Config{Endpoints: []string{b.url}, Trust: a.keys.CA.Trust(), Token: a.admin}))(t)
	t.Cleanup(cl.Close)

	const n = 30
	from := a.fleet.Store.Revision()
	var seen []string
	var watching sync.WaitGroup
	watching.Go(func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for e, err := range client.Of[trivet.Account](cl).Watch(ctx, client.WatchOptions{From: from}) {
			if err != nil {
				t.Error(err)
				return
			}
			if seen = append(seen, e.Name); len(seen) == n {
				return
			}
		}
	})
	var want []string
	accounts := client.Of[trivet.Account](cl)
	for i := range n {
		name := fmt.Sprintf("account-%02d", i)
		want = append(want, name)
		if _, err := accounts.Create(t.Context(), &trivet.Account{Meta: trivet.Meta{Name: name},
			Spec: trivet.AccountSpec{Role: "viewer"}}); err != nil {
			t.Fatal(err)
		}
		b.cut()
		if _, err := accounts.Get(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	watching.Wait()
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("watched:\n%s", diff)
	}
	if got := len(cl.Endpoints()); got != 3 {
		t.Errorf("it knows %v", cl.Endpoints())
	}

	h := &executor{do: map[string]func(context.Context) error{}}
	cut := func(context.Context) error { b.cut(); return nil }
	h.do["one"], h.do["two"] = cut, cut
	a.claim()
	ctx, stop := context.WithCancel(t.Context())
	a.live(ctx, h, 0, b.url)
	st := a.await("done", func(w *trivet.Workflow) bool { return w.Status.State.Ended() })
	stop()
	if diff := cmp.Diff(map[string]int{"one": 1, "two": 1}, h.ran()); diff != "" ||
		st.State != trivet.WorkflowSucceeded || st.Acked != 4 {
		t.Errorf("%+v, ran\n%s", st, diff)
	}
}
