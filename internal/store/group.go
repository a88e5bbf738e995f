package store

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
)

// Group commits small transactions that wait at the same time together: in one transaction of etcd, which costs one
// entry of raft's log, one sync of the disk and one revision, for many as for one. Each of them is still decided by
// itself: where the compares of all do not hold, the group is sent again as nested transactions, each with its own
// compares, which fail for it alone. Each has its own ID, by which its outcome is looked up if there is no response.
// There is no delay: the first is sent at once, and those that come meanwhile are the next group.
type Group struct {
	store *Store

	mu sync.Mutex
	// guards following
	waiting []*grouped // in order of arrival; bounded
	running bool       // a goroutine sends groups
}

// Bounds of a Group.
const (
	maxWaiting = 1024
	// etcdOps is etcd's limit of the compares or operations of one transaction, with those of one that is nested in it.
	etcdOps = 128
)

// grouped is a transaction that waits for its group, or for the response to it.
type grouped struct {
	ifs   []clientv3.Cmp
	thens []clientv3.Op
	done  chan response
}

// NewGroup returns a group of the store's transactions.
func (s *Store) NewGroup() *Group { return &Group{store: s} }

// Update is [Store.Update] in a transaction that others share. Its own reads decide whether it is committed; no other's
// do. It also fails with ErrUnavailable when too many wait.
func (g *Group) Update(ctx context.Context, fn func(tx *Tx) error) (int64, error) {
	return g.store.updateBy(ctx, fn, g.send)
}

// send is the [sender] of transactions that wait for a group.
func (g *Group) send(ctx context.Context, ifs []clientv3.Cmp, thens []clientv3.Op) (response, error) {
	m := &grouped{ifs, thens, make(chan response, 1)}
	if !g.add(m) {
		return response{}, &trivet.Error{Op: "update", Hint: "the store is overloaded; try again",
			Err: fmt.Errorf("%w: more than %d transactions wait", trivet.ErrUnavailable, maxWaiting)}
	}
	select {
	case r := <-m.done:
		return r, r.err
	case <-ctx.Done():
		if g.remove(m) {
			return response{}, noQuorum("update", ctx.Err()) // it was not sent
		}
		return response{}, ctx.Err()
	}
}

// add lets a transaction wait for the next group. It is false if too many do.
func (g *Group) add(m *grouped) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) >= maxWaiting {
		return false
	}
	g.waiting = append(g.waiting, m)
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
			g.waiting = append(g.waiting[:i:i], g.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// run sends groups until no transaction waits.
func (g *Group) run() {
	for {
		b := g.next()
		if len(b.members) == 0 {
			return
		}
		committed, revision, err := g.commit(b)
		go g.respond(b, committed, response{revision: revision, at: time.Now(), err: err})
	}
}

// next returns those of the waiting transactions that make the next group. If none waits, the sender ends.
func (g *Group) next() *batch {
	g.mu.Lock()
	defer g.mu.Unlock()
	b := &batch{reads: map[string]int64{}, writes: map[string]bool{}}
	var later []*grouped
	for _, m := range g.waiting {
		if !b.add(m) {
			later = append(later, m)
		}
	}
	g.waiting, g.running = later, len(b.members) > 0
	return b
}

// commit sends a group, and returns which of its transactions were committed.
func (g *Group) commit(b *batch) (committed func(i int) bool, revision int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), g.store.opts.Timeout)
	defer cancel()
	resp, err := g.store.send(ctx, b.ifs, b.thens)
	if err != nil || resp.committed {
		return func(int) bool { return true }, resp.revision, err
	}
	var each *clientv3.TxnResponse
	err = g.store.attempt(ctx, func(ctx context.Context) (err error) {
		each, err = g.store.client.Txn(ctx).Then(b.nested()...).Commit()
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return func(i int) bool { return each.Responses[i].GetResponseTxn().GetSucceeded() }, each.Header.Revision, nil
}

// respond gives each transaction of a group its response, when the copy has what was committed. The next group does not
// wait for that.
func (g *Group) respond(b *batch, committed func(i int) bool, r response) {
	if r.err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), g.store.opts.Timeout)
		defer cancel()
		_ = g.store.pending.wait(ctx, r.revision) // each waits on, if it must; so none is woken twice
	}
	for i, m := range b.members {
		r.committed = r.err == nil && committed(i)
		m.done <- r
	}
}

// batch is a group that is being made. What one of its transactions writes no other one reads or writes: etcd evaluates
// all compares before the first write, so that no decision of a group would see another's.
type batch struct {
	members []*grouped
	ifs     []clientv3.Cmp // of all, each once
	thens   []clientv3.Op  // of all
	reads   map[string]int64
	writes  map[string]bool
	bytes   int
	widest  int // most compares or operations of one
	alone   bool
}

// add adds a transaction, if the group has room and nothing in common with it but reads.
func (b *batch) add(m *grouped) bool {
	bytes, widest := m.bytes(), max(b.widest, len(m.ifs), len(m.thens))
	full := len(b.members)+1+widest > etcdOps || len(b.ifs)+len(m.ifs) > etcdOps ||
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
	for i := range m.thens {
		b.writes[string(m.thens[i].KeyBytes())] = true
	}
	b.members, b.thens = append(b.members, m), append(b.thens, m.thens...)
	b.bytes, b.widest = b.bytes+bytes, widest
	return true
}

// meets reports whether a transaction writes what the group reads or writes, or reads what the group writes or has read
// at another revision.
func (b *batch) meets(m *grouped) bool {
	for i := range m.ifs {
		key := m.ifs[i].KeyBytes()
		if revision, read := b.reads[string(key)]; b.writes[string(key)] || read && revision != expected(&m.ifs[i]) {
			return true
		}
	}
	for i := range m.thens {
		key := m.thens[i].KeyBytes()
		if _, read := b.reads[string(key)]; read || b.writes[string(key)] {
			return true
		}
	}
	return false
}

// expected returns the revision with which a transaction compares a key.
func expected(c *clientv3.Cmp) int64 { return c.GetCompare().GetModRevision() }

// nested returns each transaction of the group as one operation.
func (b *batch) nested() []clientv3.Op {
	ops := make([]clientv3.Op, len(b.members))
	for i, m := range b.members {
		ops[i] = clientv3.OpTxn(m.ifs, m.thens, nil)
	}
	return ops
}

func (m *grouped) bytes() (n int) {
	for i := range m.thens {
		n += len(m.thens[i].KeyBytes()) + len(m.thens[i].ValueBytes())
	}
	return n
}
