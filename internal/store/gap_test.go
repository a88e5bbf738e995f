package store_test

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

var (
	heartbeat = flag.Duration("heartbeat", 0, "of raft, for BenchmarkWriteGap; 0: the default")
	election  = flag.Duration("election", 0, "of raft, for BenchmarkWriteGap; 0: the default")
)

// trio is three heads, each a process.
type trio struct {
	testing.TB
	cfgs  []HeadConfig
	heads []*process
}

func newTrio(t testing.TB, c HeadConfig) *trio {
	t.Helper()
	r := &trio{TB: t, cfgs: three(t, c), heads: make([]*process, 3)}
	for at := range r.cfgs {
		r.heads[at] = run(t, r.cfgs[at])
		t.Cleanup(func() { r.heads[at].kill(t) })
	}
	for at := range r.cfgs {
		r.waitSynced(at)
	}
	return r
}

// start runs a head, and waits until its copy is current.
func (r *trio) start(at int) {
	r.Helper()
	r.heads[at] = run(r, r.cfgs[at])
	r.waitSynced(at)
}

func (r *trio) waitSynced(at int) {
	r.Helper()
	var rev int64
	eventually(r, func() error { return r.heads[at].rpc.Call("Head.Revision", struct{}{}, &rev) })
}

// leader returns the index of the leader.
func (r *trio) leader() (at int) {
	r.Helper()
	eventually(r, func() error {
		for i, p := range r.heads {
			var isLeader bool
			if err := p.rpc.Call("Head.IsLeader", struct{}{}, &isLeader); err != nil || isLeader {
				at = i
				return err
			}
		}
		return errors.New("no leader")
	})
	return at
}

// writer writes to a head repeatedly, at most every 20 ms.
type writer struct {
	head *process
	key  string

	mu   sync.Mutex
	acks []time.Time // guarded by mu
	errs []string    // guarded by mu
}

func (w *writer) run(stop <-chan struct{}) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		var out Result
		began := time.Now()
		err := w.head.rpc.Call("Head.Do", Op{Do: "write", Key: w.key, ID: fmt.Sprint(n)}, &out)
		w.mu.Lock()
		if err == nil && out.Failed == "" {
			w.acks = append(w.acks, time.Now())
		} else {
			w.errs = append(w.errs, fmt.Sprint(time.Since(began), err, out.Failed))
		}
		w.mu.Unlock()
	}
}

// acked returns the number of acknowledged writes.
func (w *writer) acked() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acks)
}

// gap returns the longest time between two acknowledged writes.
func (w *writer) gap() (longest time.Duration) {
	for i, at := range w.acks[1:] {
		longest = max(longest, at.Sub(w.acks[i]))
	}
	return longest
}

// without stops the leader while writers write to the others, until all writes succeed again. It returns the gap of
// each writer.
func (r *trio) without(leader int, stop func(p *process)) (gaps []time.Duration) {
	r.Helper()
	var writers []*writer
	var working sync.WaitGroup
	done := make(chan struct{})
	for at, p := range r.heads {
		if at != leader {
			w := &writer{head: p, key: fmt.Sprint("w", at)}
			writers = append(writers, w)
			working.Go(func() { w.run(done) })
		}
	}
	more := func() {
		for _, w := range writers {
			enough := w.acked() + 10
			eventually(r, func() error {
				if n := w.acked(); n < enough {
					return fmt.Errorf("%d writes of %d: %q", n, enough, w.errs)
				}
				return nil
			})
		}
	}
	more()
	stop(r.heads[leader])
	more()
	close(done)
	working.Wait()
	for _, w := range writers {
		gaps = append(gaps, w.gap())
		if len(w.errs) > 0 {
			r.Errorf("failed writes: %q", w.errs)
		}
	}
	return gaps
}

// A write that the leader did not complete before it stopped is completed by the next leader.
func TestNoWriteFailsWithItsLeader(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a cluster of three, which takes ten seconds")
	}
	r := newTrio(t, HeadConfig{})
	at := r.leader()
	t.Log(r.without(at, func(p *process) { p.kill(t) }))
	r.start(at)
	at = r.leader()
	t.Log(r.without(at, func(p *process) { p.stop(t) }))
}

// BenchmarkWriteGap measures for how long no write is acknowledged after the leader stops, b.N times.
func BenchmarkWriteGap(b *testing.B) {
	for _, c := range []struct {
		name        string
		stop, start func(r *trio, at int)
	}{
		{"killed", func(r *trio, at int) { r.heads[at].kill(r) }, (*trio).start},
		{"halted", func(r *trio, at int) { _ = r.heads[at].cmd.Process.Signal(syscall.SIGSTOP) },
			func(r *trio, at int) {
				_ = r.heads[at].cmd.Process.Signal(syscall.SIGCONT)
				r.waitSynced(at)
			}},
		{"closed", func(r *trio, at int) { r.heads[at].stop(r) }, (*trio).start},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := newTrio(b, HeadConfig{Heartbeat: *heartbeat, Election: *election})
			var gaps []time.Duration
			for b.Loop() {
				at := r.leader()
				gaps = append(gaps, r.without(at, func(*process) { c.stop(r, at) })...)
				c.start(r, at)
			}
			slices.Sort(gaps)
			for _, p := range []int{50, 99, 100} {
				b.ReportMetric(float64(gaps[(len(gaps)-1)*p/100].Microseconds())/1000, fmt.Sprintf("ms/p%d", p))
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
