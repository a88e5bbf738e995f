package store

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/wait"
)

// The records of a cold kind are history. They are written in transactions and watched as others are, and no head has
// them in its copy: they are read from this head's member, at the revision of the copy.
//
// A name is that of a page and, as its last character, a slot in it. The key of a record is
// /trivet-history/<kind>/<page>!<slot>. A transaction that writes slot "7" or "f", or several slots, replaces the keys of
// the page's records by one key, /trivet-history/<kind>/<page>, with all of them: etcd keeps each key in memory, each
// write of a key costs every head some work, and similar records compress well. A record that was written since has a
// key of its own again, which takes precedence.
//
// Cold records are dropped with all that have a prefix. Watchers are not notified of that.

const (
	slotMark = "!" // no name has it, and it sorts before what names have
	slotEnd  = "\""
	halfSlot = "7"
	lastSlot = "f"
)

func isHistory(key string) bool { return strings.HasPrefix(key, historyPrefix) }

// historyKey returns the key of a record of a cold kind, and the key of its page.
func historyKey(part, name string) (key, page string) {
	slot := name[max(0, len(name)-1):]
	page = historyPrefix + part + "/" + strings.TrimSuffix(name, slot)
	return page + slotMark + slot, page
}

// cutSlot returns the key of the page that a record belongs to, and its slot. ok is false for other keys.
func cutSlot(key string) (page, slot string, ok bool) {
	if !isHistory(key) {
		return "", "", false
	}
	return strings.Cut(key, slotMark)
}

// pageDoc is the value of a page's key.
type pageDoc struct {
	Kind    string       `json:"kind"`
	Records []pageRecord `json:"records"`
}

type pageRecord struct {
	Slot     string          `json:"slot"`
	Revision int64           `json:"revision,omitempty"` // of its last change; 0: that of the page
	Doc      json.RawMessage `json:"doc"`
}

// coldPage is what is stored of one page at one revision.
type coldPage struct {
	store   *Store
	key     string
	whole   *mvccpb.KeyValue            // nil: it has no key of its own
	single  map[string]*mvccpb.KeyValue // by slot
	entries map[string]*entry           // by slot: those that were read
	packed  map[string]*entry           // by slot: those of whole; nil: not read yet
}

// coldPages returns the pages of keys in their order.
func (s *Store) coldPages(kvs []*mvccpb.KeyValue) (pages []*coldPage) {
	for _, kv := range kvs {
		key, slot, single := cutSlot(string(kv.Key))
		if !single {
			key = string(kv.Key)
		}
		if len(pages) == 0 || pages[len(pages)-1].key != key {
			pages = append(pages, &coldPage{store: s, key: key, single: map[string]*mvccpb.KeyValue{},
				entries: map[string]*entry{}})
		}
		if p := pages[len(pages)-1]; single {
			p.single[slot] = kv
		} else {
			p.whole = kv
		}
	}
	return pages
}

// slots returns the slots that have records, in order.
func (p *coldPage) slots() []string {
	all := maps.Clone(p.inWhole())
	for slot := range p.single {
		all[slot] = nil
	}
	return slices.Sorted(maps.Keys(all))
}

// entry returns the record of a slot, or nil. One that has no key of its own has no ModRevision.
func (p *coldPage) entry(slot string) *entry {
	e, known := p.entries[slot]
	if !known {
		if kv := p.single[slot]; kv != nil {
			e = p.store.read(kv, nil)
		} else {
			e = p.inWhole()[slot]
			e.decodeOnce()
		}
		p.entries[slot] = e
	}
	return e
}

func (p *coldPage) inWhole() map[string]*entry {
	if p.packed != nil {
		return p.packed
	}
	p.packed = map[string]*entry{}
	if p.whole != nil {
		_, records := p.store.readPage(p.whole)
		for _, e := range records {
			_, slot, _ := cutSlot(e.key)
			p.packed[slot] = e
		}
	}
	return p.packed
}

// wholeEntry returns the entry of the page's own key, or nil.
func (p *coldPage) wholeEntry() *entry {
	if p.whole == nil {
		return nil
	}
	kind, name, _ := splitKey(p.key)
	return p.store.openEntry(p.key, kind, name, p.whole)
}

// readPage reads the value of a page's key. The records are not decoded yet.
func (s *Store) readPage(kv *mvccpb.KeyValue) (page *entry, records []*entry) {
	key := string(kv.Key)
	kind, name, _ := splitKey(key)
	page = s.openEntry(key, kind, name, kv)
	if page.err != nil || page.info == nil {
		return page, nil
	}
	var doc pageDoc
	if err := json.Unmarshal(page.doc(), &doc); err != nil {
		s.log.Error("cannot decode a stored page of records", "key", key, "error", err)
		return page, nil
	}
	for _, r := range doc.Records {
		e := &entry{key: key + slotMark + r.Slot, kind: kind, name: name + r.Slot, info: page.info, rev: r.Revision,
			plain: r.Doc, length: len(r.Doc), tx: page.tx, sealed: page.sealed}
		if r.Revision == 0 {
			e.rev = page.rev
		}
		records = append(records, e)
	}
	return page, records
}

// historyEvents returns the events of a change of a cold kind's key. That of a former record is no change of it.
func (s *Store) historyEvents(ev *clientv3.Event) (events []*Event) {
	if ev.Type == clientv3.EventTypeDelete || isFormer(string(ev.Kv.Key)) {
		return nil
	}
	for _, e := range s.changedIn(ev.Kv) {
		if event := s.newEvent(e.key, nil, e, ev.Kv.ModRevision); event != nil {
			events = append(events, event)
		}
	}
	return events
}

// changedIn returns the records of a value that its transaction changed. They are not decoded yet.
func (s *Store) changedIn(kv *mvccpb.KeyValue) (changed []*entry) {
	if _, _, single := cutSlot(string(kv.Key)); single {
		key := string(kv.Key)
		kind, name, _ := splitKey(key)
		e := s.openEntry(key, kind, name, kv)
		s.refusals.log(e)
		return []*entry{e}
	}
	page, records := s.readPage(kv)
	s.refusals.log(page)
	for _, e := range records {
		if e.rev == page.rev && !page.resealed() {
			e.mod = e.rev
			changed = append(changed, e)
		}
	}
	return changed
}

// coldPage reads a page at a revision.
func (s *Store) coldPage(ctx context.Context, key string, revision int64) (*coldPage, error) {
	found, err := s.getAt(ctx, key, revision, clientv3.WithRange(key+slotEnd))
	if err != nil {
		return nil, err
	}
	if pages := s.coldPages(found.Kvs); len(pages) > 0 {
		return pages[0], nil
	}
	return &coldPage{store: s, key: key, entries: map[string]*entry{}}, nil
}

// applyDelay is how long this head's member gets to apply a revision.
const applyDelay = time.Millisecond

// getAt reads from this head's member at a revision of the copy. etcd sends the events of a transaction a moment before
// its revision can be read: it reads again until then.
func (s *Store) getAt(ctx context.Context, key string, revision int64, opts ...clientv3.OpOption) (
	found *clientv3.GetResponse, err error) {
	opts = append(opts, clientv3.WithRev(revision), clientv3.WithSerializable())
	for {
		found, err = s.client.Get(ctx, key, opts...)
		if !errors.Is(err, rpctypes.ErrFutureRev) || wait.Sleep(ctx, applyDelay) != nil {
			return found, err
		}
	}
}

// atCopy reads at the revision of the copy. If etcd has compacted that, it reads again at a newer one.
func (s *Store) atCopy(ctx context.Context, read func(ctx context.Context, revision int64) error) (int64, error) {
	return s.atSnapshot(ctx, func(ctx context.Context, snap *snapshot) error { return read(ctx, snap.rev) })
}

// atSnapshot is atCopy for what is read of the copy as well.
func (s *Store) atSnapshot(ctx context.Context, read func(ctx context.Context, snap *snapshot) error) (int64, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	for {
		snap := s.snapshot()
		err := read(ctx, snap)
		if errors.Is(err, rpctypes.ErrCompacted) && wait.Sleep(ctx, retryDelay) == nil {
			continue
		}
		if err != nil {
			err = &trivet.Error{Op: "read history", Err: unavailable(err)}
		}
		return snap.rev, err
	}
}
