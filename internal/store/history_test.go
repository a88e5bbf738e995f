package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/rpc"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// history is the operations of a test and what its consumers received, while heads are killed and links lose messages.
type history struct {
	t     *testing.T
	seed  uint64
	cfgs  []HeadConfig
	began time.Time
	stop  chan struct{} // closed when the workers must stop

	mu      sync.Mutex
	heads   []*process // guarded by mu, as all below; nil: killed
	starts  uint64
	ops     []porcupine.Operation
	acked   int           // of ops
	more    chan struct{} // closed at the next operation
	broken  []error       // errors that no head may return
	streams [][]Change    // by consumer
}

const (
	keys    = 4
	forever = 1 << 62
)

// worker runs operations on random heads until it is stopped.
func (h *history) worker(id int) {
	dice := rand.New(rand.NewPCG(h.seed, uint64(id)))
	for n := 0; ; n++ {
		select {
		case <-h.stop:
			return
		case <-h.t.Context().Done():
			return
		default:
		}
		op := Op{Do: "write", Key: fmt.Sprint("k", dice.IntN(keys)), ID: fmt.Sprint("w", id, ".", n)}
		switch d := dice.IntN(20); {
		case d < 4:
			op.Do = "read"
		case d < 6:
			op.Do = "delete"
		}
		h.do(id, op, dice.IntN(len(h.cfgs)))
	}
}

// do runs an operation on a head, or on the next one that runs, and records the result.
func (h *history) do(client int, op Op, at int) {
	head := h.running(at)
	var out Result
	call := time.Since(h.began).Nanoseconds()
	err := head.rpc.Call("Head.Do", op, &out)
	done := porcupine.Operation{ClientId: client, Input: op, Call: call, Output: out,
		Return: time.Since(h.began).Nanoseconds()}
	if err == nil && out.Failed != "" {
		time.Sleep(10 * time.Millisecond) // without a quorum it fails at once
	}
	var serverErr rpc.ServerError
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case errors.Is(err, rpc.ErrShutdown): // it was not sent
	case errors.As(err, &serverErr):
		h.broken = append(h.broken, err)
	case err != nil || out.Unknown:
		done.Output, done.Return = Result{Unknown: true}, forever
		if op.Do != "read" {
			h.ops = append(h.ops, done)
		}
	case out.Failed == "":
		h.acked++
		h.ops = append(h.ops, done)
	}
	close(h.more)
	h.more = make(chan struct{})
}

// running returns the head at an index, or the next one that runs.
func (h *history) running(at int) *process {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.heads {
		if p := h.heads[(at+i)%len(h.heads)]; p != nil {
			return p
		}
	}
	panic("all heads were killed")
}

// acks waits until n more operations are acknowledged.
func (h *history) acks(n int) {
	h.t.Helper()
	deadline := time.After(time.Minute)
	for want := -1; ; {
		h.mu.Lock()
		if want < 0 {
			want = h.acked + n
		}
		acked, more := h.acked, h.more
		h.mu.Unlock()
		if acked >= want {
			return
		}
		select {
		case <-more:
		case <-deadline:
			h.t.Fatalf("%d of %d operations in a minute", n-(want-acked), n)
		}
	}
}

// start starts a head, kill kills it.
func (h *history) start(at int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.starts++
	c := h.cfgs[at]
	c.Seed = h.seed + h.starts
	h.heads[at] = run(h.t, c)
}

func (h *history) kill(at int) {
	h.mu.Lock()
	p := h.heads[at]
	h.heads[at] = nil
	h.mu.Unlock()
	if p != nil {
		p.kill(h.t)
	}
}

// consume follows all changes after a revision, on random heads, up to the revision that is sent to end.
func (h *history) consume(id int, from int64, end <-chan int64) {
	dice := rand.New(rand.NewPCG(h.seed, 100+uint64(id)))
	at, last := 0, int64(forever)
	for from < last && h.t.Context().Err() == nil {
		if dice.IntN(20) == 0 {
			at = dice.IntN(len(h.cfgs))
		}
		var out Changes
		err := h.running(at).rpc.Call("Head.Next", From{fmt.Sprint("c", id), from}, &out)
		var serverErr rpc.ServerError
		h.mu.Lock()
		switch {
		case errors.As(err, &serverErr):
			h.broken = append(h.broken, err)
		case err == nil:
			from = out.Revision
			h.streams[id] = append(h.streams[id], out.Events...)
		}
		h.mu.Unlock()
		select {
		case last = <-end:
			end = nil
		default:
		}
		if errors.As(err, &serverErr) {
			return
		}
	}
}

// record records a history: it starts heads and workers, injects faults, and returns when all consumers have all
// changes, including one that starts at the end.
func record(t *testing.T, seed uint64, cfgs []HeadConfig, faults func(*history)) *history {
	t.Helper()
	const workers, consumers = 6, 2
	h := &history{
		t: t, seed: seed, cfgs: cfgs, began: time.Now(), stop: make(chan struct{}), more: make(chan struct{}),
		heads: make([]*process, len(cfgs)), streams: make([][]Change, consumers+1),
	}
	for at := range cfgs {
		h.start(at)
		t.Cleanup(func() { h.kill(at) })
	}
	from := h.revision(0)
	end := make(chan int64, consumers+1)
	var working, consuming sync.WaitGroup
	t.Cleanup(func() { working.Wait(); consuming.Wait() })
	for id := range consumers {
		consuming.Go(func() { h.consume(id, from, end) })
	}
	for id := range workers {
		working.Go(func() { h.worker(id) })
	}
	faults(h)
	close(h.stop)
	working.Wait()
	for k := range keys {
		h.do(workers, Op{Do: "read", Key: fmt.Sprint("k", k)}, 0)
	}
	last := h.revision(0)
	for range consumers + 1 {
		end <- last
	}
	h.consume(consumers, from, end)
	consuming.Wait()
	return h
}

// revision returns the revision of a head after a sync.
func (h *history) revision(at int) (rev int64) {
	h.t.Helper()
	eventually(h.t, func() error { return h.running(at).rpc.Call("Head.Revision", struct{}{}, &rev) })
	return rev
}

// check returns what is wrong with the history.
func (h *history) check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	wrong := slices.Clone(h.broken[:min(len(h.broken), 5)])
	if r := porcupine.CheckOperationsTimeout(register, h.ops, 30*time.Second); r != porcupine.Ok {
		wrong = append(wrong, fmt.Errorf("%d operations are not linearizable: %s", len(h.ops), r))
	}
	for id, stream := range h.streams {
		if err := h.complete(stream); err != nil {
			wrong = append(wrong, fmt.Errorf("consumer %d: %w", id, err))
		}
	}
	return errors.Join(wrong...)
}

// register is the model of a key.
var register = porcupine.Model{
	Partition: func(ops []porcupine.Operation) (parts [][]porcupine.Operation) {
		byKey := map[string][]porcupine.Operation{}
		for _, op := range ops {
			key := op.Input.(Op).Key
			byKey[key] = append(byKey[key], op)
		}
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return Value{} },
	Step: func(state, input, output any) (bool, any) {
		was, op, out := state.(Value), input.(Op), output.(Result)
		return out.Unknown || out.Value == was, after(was, op)
	},
}

// after returns the value of a key after an operation.
func after(was Value, op Op) Value {
	switch op.Do {
	case "write":
		return Value{was.Count + 1, op.ID}
	case "delete":
		return Value{}
	}
	return was
}

// complete checks that a consumer received each change once, in order, and every acknowledged one.
func (h *history) complete(stream []Change) error {
	now, changed := map[string]Value{}, map[int64]bool{}
	last := Change{}
	for _, c := range stream {
		was := now[c.Key]
		if c.Revision < last.Revision || c.Revision == last.Revision && c.Key <= last.Key {
			return fmt.Errorf("%v was received after %v", c, last)
		}
		if c.Value == was || c.Value != (Value{}) && c.Count != was.Count+1 {
			return fmt.Errorf("%v follows %v", c, was)
		}
		now[c.Key], last, changed[c.Revision] = c.Value, c, true
	}
	for _, op := range h.ops {
		in, out := op.Input.(Op), op.Output.(Result)
		if !out.Unknown && after(out.Value, in) != out.Value && !changed[out.Revision] {
			return fmt.Errorf("%v was acknowledged at %d, and is not among %d changes", in, out.Revision, len(stream))
		}
	}
	return nil
}
