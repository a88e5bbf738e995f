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
	heartbeat = flag.Duration("heartbeat", 0, "raft's, for BenchmarkWriteGap; 0: the default")
	election  = flag.Duration("election", 0, "raft's, for BenchmarkWriteGap; 0: the default")
)

// trio are three heads as processes.
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
		r.arrived(at)
	}
	return r
}

// start runs a head, and waits until it has everything.
func (r *trio) start(at int) {
	r.Helper()
	r.heads[at] = run(r, r.cfgs[at])
	r.arrived(at)
}

func (r *trio) arrived(at int) {
	r.Helper()
	var rev int64
	eventually(r, func() error { return r.heads[at].door.Call("Door.Revision", struct{}{}, &rev) })
}

// leader gives the place of the one that leads.
func (r *trio) leader() (at int) {
	r.Helper()
	eventually(r, func() error {
		for i, p := range r.heads {
			var leads bool
			if err := p.door.Call("Door.IsLeader", struct{}{}, &leads); err != nil || leads {
				at = i
				return err
			}
		}
		return errors.New("nobody leads")
	})
	return at
}

// writer writes to a head, again and again, one write every 20 ms where that is fast enough.
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
		var out Seen
		began := time.Now()
		err := w.head.door.Call("Door.Do", Op{Do: "write", Key: w.key, ID: fmt.Sprint(n)}, &out)
		w.mu.Lock()
		if err == nil && out.Failed == "" {
			w.acks = append(w.acks, time.Now())
		} else {
			w.errs = append(w.errs, fmt.Sprint(time.Since(began), err, out.Failed))
		}
		w.mu.Unlock()
	}
}

// acked says how often it was.
func (w *writer) acked() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acks)
}

// gap is the longest time between two acknowledged writes.
func (w *writer) gap() (longest time.Duration) {
	for i, at := range w.acks[1:] {
		longest = max(longest, at.Sub(w.acks[i]))
	}
	return longest
}

// without ends the leader while writers write to the others, until all of them go on, and gives the gap of each.
func (r *trio) without(leader int, end func(p *process)) (gaps []time.Duration) {
	r.Helper()
	var writers []*writer
	var working sync.WaitGroup
	stop := make(chan struct{})
	for at, p := range r.heads {
		if at != leader {
			w := &writer{head: p, key: fmt.Sprint("w", at)}
			writers = append(writers, w)
			working.Go(func() { w.run(stop) })
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
	end(r.heads[leader])
	more()
	close(stop)
	working.Wait()
	for _, w := range writers {
		gaps = append(gaps, w.gap())
		if len(w.errs) > 0 {
			r.Errorf("writes that failed: %q", w.errs)
		}
	}
	return gaps
}

// What a leader takes along when it goes is written by the next one.
func TestNoWriteIsLostWithItsLeader(t *testing.T) {
	if testing.Short() {
		t.Skip("grows a cluster, which takes ten seconds")
	}
	r := newTrio(t, HeadConfig{})
	at := r.leader()
	t.Log(r.without(at, func(p *process) { p.kill(t) }))
	r.start(at)
	at = r.leader()
	t.Log(r.without(at, func(p *process) { p.end(t) }))
}

// BenchmarkWriteGap measures for how long nobody's writes are acknowledged when the leader goes, b.N times.
func BenchmarkWriteGap(b *testing.B) {
	for _, c := range []struct {
		name      string
		end, back func(r *trio, at int)
	}{
		{"killed", func(r *trio, at int) { r.heads[at].kill(r) }, (*trio).start},
		{"halted", func(r *trio, at int) { _ = r.heads[at].cmd.Process.Signal(syscall.SIGSTOP) },
			func(r *trio, at int) { _ = r.heads[at].cmd.Process.Signal(syscall.SIGCONT); r.arrived(at) }},
		{"closed", func(r *trio, at int) { r.heads[at].end(r) }, (*trio).start},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := newTrio(b, HeadConfig{Heartbeat: *heartbeat, Election: *election})
			var gaps []time.Duration
			for b.Loop() {
				at := r.leader()
				gaps = append(gaps, r.without(at, func(*process) { c.end(r, at) })...)
				c.back(r, at)
			}
			slices.Sort(gaps)
			for _, p := range []int{50, 99, 100} {
				b.ReportMetric(float64(gaps[(len(gaps)-1)*p/100].Microseconds())/1000, fmt.Sprintf("ms/p%d", p))
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
