package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
)

// Group commits small transactions that wait at the same time together: in one transaction of etcd, which costs one
// entry of raft's log, one sync of the disk and one revision, for many as for one. Each of them is still decided by
// itself: where the compares of all do not hold, the group is sent again as nested transactions, each with its own
// compares, which fail for it alone. Each has its own ID, by which its outcome is looked up if there is no response.
// There is no delay: the first is sent at once, and those that come meanwhile are the next group.
//
// Few are in progress at a time, and the others wait before they read anything: a thousand that wait with what they have
// read would take the processor from etcd, and find that it has changed.
//
// Transactions that add records to one list share a group: the key of the list, which none of them compares, is written
// once for all.
type Group struct {
	store *Store
	slots chan struct{} // one for each transaction in progress
	ended atomic.Int64  // transactions with a known outcome

	mu      sync.Mutex
	waiting []*grouped // guarded by mu, as below; in order of arrival; at most InProgress
	bytes   int        // of what the waiting write
	// maxBytes bounds bytes, but for one that waits alone.
	maxBytes int
	running  bool // a goroutine sends groups
}

// InProgress is how many transactions of a Group are in progress at a time: some groups.
const InProgress = 256

// Bounds of a Group.
const (
	// slotTimeout is how long a transaction waits for that. It is well below the time after which a client tries another
	// head, which would make an overload worse.
	slotTimeout     = 3 * time.Second
	maxWaitingBytes = 32 << 20
	// etcdOps is etcd's limit of the compares or operations of one transaction, with those of one that is nested in it.
	etcdOps = 128
)

// grouped is a transaction that waits for its group, or for the response to it.
type grouped struct {
	ifs   []clientv3.Cmp // without that of the guard
	thens []clientv3.Op
	done  chan response
	guard int64 // with which it is sent; guarded by Group.mu until then
}

// ErrOverloaded means that a transaction was refused before it began, as too many others were before it.
var ErrOverloaded = fmt.Errorf("%w: too many transactions wait", trivet.ErrUnavailable)

// NewGroup returns a group of the store's transactions.
func (s *Store) NewGroup() *Group {
	return &Group{store: s, slots: make(chan struct{}, InProgress), maxBytes: maxWaitingBytes}
}

// Update is [Store.Update] in a transaction that others share. Its own reads decide whether it is committed; no other's
// do. It also fails with ErrOverloaded, and with ErrUnavailable where all that are in progress wait for etcd.
func (g *Group) Update(ctx context.Context, fn func(tx *Tx) error) (int64, error) {
	return g.store.measure(ctx, func(ctx context.Context) (int64, error) {
		if err := g.enter(ctx); err != nil {
			return 0, err
		}
		defer func() { <-g.slots }()
		rev, err := g.store.update(ctx, fn, g.send)
		if !errors.Is(err, trivet.ErrUnavailable) && !errors.Is(err, trivet.ErrUnknown) {
			g.ended.Add(1)
		}
		return rev, err
	})
}

// enter waits for a slot, in order of arrival.
func (g *Group) enter(ctx context.Context) error {
	select {
	case g.slots <- struct{}{}:
		return nil
	default:
	}
	g.store.metrics.waiting.Inc()
	defer g.store.metrics.waiting.Dec()
	timer, before := time.NewTimer(slotTimeout), g.ended.Load()
	defer timer.Stop()
	select {
	case g.slots <- struct{}{}:
		return nil
	case <-timer.C:
		if g.ended.Load() == before { // others would fare no better
			return noQuorum("update", fmt.Errorf("no transaction has ended within %s", slotTimeout))
		}
		return overloaded()
	case <-ctx.Done():
		return noQuorum("update", ctx.Err())
	}
}

func overloaded() error {
	return &trivet.Error{Op: "update", Err: ErrOverloaded, Hint: "the store is overloaded; try again"}
}

// send is the [sender] of transactions that wait for a group.
func (g *Group) send(ctx context.Context, ifs []clientv3.Cmp, thens []clientv3.Op) (response, error) {
	m := &grouped{ifs: ifs, thens: thens, done: make(chan response, 1)}
	if !g.add(m) {
		return response{}, overloaded()
	}
	select {
	case r := <-m.done:
		r.guard = m.guard
		return r, r.err
	case <-ctx.Done():
		if g.remove(m) {
			return response{}, noQuorum("update", ctx.Err()) // it was not sent
		}
		return response{guard: m.guard}, ctx.Err()
	}
}

// add lets a transaction wait for the next group. It is false if those that wait write too much.
func (g *Group) add(m *grouped) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	bytes := m.bytes()
	if len(g.waiting) > 0 && g.bytes+bytes > g.maxBytes {
		return false
	}
	g.waiting, g.bytes = append(g.waiting, m), g.bytes+bytes
	if !g.running {
		g.running = true
		go g.run()
	}
	return true
}

// remove takes back a transaction. It is false if it was sent.
func (g *Group) remove(m *grouped) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, w := range g.waiting {
		if w == m {
			g.waiting, g.bytes = append(g.waiting[:i:i], g.waiting[i+1:]...), g.bytes-m.bytes()
			return true
		}
	}
	return false
}

// run sends groups until no transaction waits.
func (g *Group) run() {
	for b := g.next(); len(b.members) > 0; b = g.next() {
		g.commit(b)
	}
}

// next returns those of the waiting transactions that make the next group. If none waits, the sender ends.
func (g *Group) next() *batch {
	g.mu.Lock()
	defer g.mu.Unlock()
	guard := g.store.guard()
	b := &batch{guard: g.store.isGuard(guard), reads: map[string]int64{}, writes: map[string]bool{}}
	var later []*grouped
	for _, m := range g.waiting {
		if !b.add(m) {
			later = append(later, m)
			continue
		}
		m.guard = guard
	}
	g.waiting, g.running, g.bytes = later, len(b.members) > 0, g.bytes-b.bytes
	return b
}

// commit sends a group, as one transaction or, where the compares of all do not hold, each by itself.
func (g *Group) commit(b *batch) {
	ctx, cancel := context.WithTimeout(context.Background(), g.store.opts.Timeout)
	defer cancel()
	all, err := g.store.sendWhole(ctx, append(b.ifs, b.guard), b.thens)
	if err != nil || all.committed {
		all.at, all.err = time.Now(), err
		go g.respond(b.members, func(int) bool { return true }, all)
		return
	}
	for _, round := range b.rounds() {
		committed, r := g.each(ctx, b.guard, round)
		go g.respond(round, committed, r)
	}
}

// each sends transactions nested in one, and returns which were committed.
func (g *Group) each(ctx context.Context, guard clientv3.Cmp, members []*grouped) (
	committed func(i int) bool, r response) {
	nested := make([]clientv3.Op, len(members))
	for i, m := range members {
		nested[i] = clientv3.OpTxn(append(m.ifs, guard), m.thens, nil)
	}
	var resp *clientv3.TxnResponse
	err := g.store.attempt(ctx, func(ctx context.Context) (err error) {
		resp, err = g.store.client.Txn(ctx).Then(nested...).Commit()
		return err
	})
	if err != nil {
		return nil, response{at: time.Now(), err: err}
	}
	return func(i int) bool { return resp.Responses[i].GetResponseTxn().GetSucceeded() },
		response{revision: resp.Header.Revision, at: time.Now()}
}

// respond gives each of some transactions its response, when the copy has what was committed. The next group does not
// wait for that.
func (g *Group) respond(members []*grouped, committed func(i int) bool, r response) {
	if r.err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), g.store.opts.Timeout)
		defer cancel()
		_ = g.store.pending.wait(ctx, r.revision) // each waits on, if it must; so none is woken twice
	}
	for i, m := range members {
		r.committed = r.err == nil && committed(i)
		m.done <- r
	}
}

// batch is a group that is being made. What one of its transactions writes no other one reads or writes: etcd evaluates
// all compares before the first write, so that no decision of a group would see another's. The keys of lists to which
// records are added are no exception to the first: a transaction that decides on the list compares its key.
type batch struct {
	members []*grouped
	guard   clientv3.Cmp   // of the guard, for all
	ifs     []clientv3.Cmp // of all, each once
	thens   []clientv3.Op  // of all, each key once
	reads   map[string]int64
	writes  map[string]bool // by key: it is written by an addition to a list
	bytes   int
	widest  int // most compares or operations of one
	alone   bool
}

// add adds a transaction, if the group has room and nothing in common with it but reads.
func (b *batch) add(m *grouped) bool {
	bytes, widest := m.bytes(), max(b.widest, len(m.ifs)+1, len(m.thens)) // 1: the guard
	full := len(b.members)+1+widest > etcdOps || len(b.ifs)+len(m.ifs)+1 > etcdOps ||
		len(b.thens)+len(m.thens) > MaxOps || b.bytes+bytes > MaxBytes
	ranged := slices.ContainsFunc(m.thens, func(op clientv3.Op) bool { return len(op.RangeBytes()) > 0 })
	if len(b.members) > 0 && (full || b.alone || ranged || b.meets(m)) {
		return false
	}
	b.alone = ranged // etcd refuses all of a group in which another one writes within the range
	for i := range m.ifs {
		key := string(m.ifs[i].KeyBytes())
		if _, compared := b.reads[key]; !compared {
			b.reads[key] = expected(&m.ifs[i])
			b.ifs = append(b.ifs, m.ifs[i])
		}
	}
	for _, op := range m.thens {
		if _, written := b.writes[string(op.KeyBytes())]; !written {
			b.thens = append(b.thens, op)
		}
		b.writes[string(op.KeyBytes())] = isAddition(op)
	}
	b.members = append(b.members, m)
	b.bytes, b.widest = b.bytes+bytes, widest
	return true
}

// meets reports whether a transaction writes what the group reads or writes, or reads what the group writes or has read
// at another revision.
func (b *batch) meets(m *grouped) bool {
	for i := range m.ifs {
		key := m.ifs[i].KeyBytes()
		revision, read := b.reads[string(key)]
		if _, written := b.writes[string(key)]; written || read && revision != expected(&m.ifs[i]) {
			return true
		}
	}
	for _, op := range m.thens {
		key := op.KeyBytes()
		_, read := b.reads[string(key)]
		addition, written := b.writes[string(key)]
		if read || written && !(addition && isAddition(op)) {
			return true
		}
	}
	return false
}

// isAddition reports whether an operation marks a list as changed by an addition.
func isAddition(op clientv3.Op) bool { return op.IsPut() && isList(string(op.KeyBytes())) }

// expected returns the revision with which a transaction compares a key.
func expected(c *clientv3.Cmp) int64 { return c.GetCompare().GetModRevision() }

// rounds returns the transactions of the group in parts that etcd takes as nested ones: no two of a part write one key.
func (b *batch) rounds() (rounds [][]*grouped) {
	for rest := b.members; len(rest) > 0; {
		var round, later []*grouped
		written := map[string]bool{}
		for _, m := range rest {
			if slices.ContainsFunc(m.thens, func(op clientv3.Op) bool { return written[string(op.KeyBytes())] }) {
				later = append(later, m)
				continue
			}
			for _, op := range m.thens {
				written[string(op.KeyBytes())] = true
			}
			round = append(round, m)
		}
		rounds, rest = append(rounds, round), later
	}
	return rounds
}

func (m *grouped) bytes() (n int) {
	for i := range m.thens {
		n += len(m.thens[i].KeyBytes()) + len(m.thens[i].ValueBytes())
	}
	return n
}
