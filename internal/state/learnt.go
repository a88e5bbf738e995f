package state

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/learnt"
	"github.com/trivet-project/trivet/internal/store"
)

// LearntDocument is the name of the documents with what the heads have learnt: a [learnt.Book] each.
const LearntDocument = "learnt"

// Learnt is what the heads have learnt of runs that ended. Each counts runs in memory and saves them in a document of
// its own, with one transaction for many runs. What a head learnt that was removed is added to another one's.
type Learnt struct {
	tables *Tables
	head   string
	all    atomic.Pointer[learnt.Book] // of all heads, as of the last exchange

	mu      sync.Mutex
	unsaved *learnt.Book // guarded by mu

	saving *saving // a save whose outcome is not known; of the goroutine that exchanges
}

// saving is a document that may have been written.
type saving struct {
	doc  []byte
	part *learnt.Book // what was unsaved before
}

// NewLearnt returns what the heads have learnt: nothing before the first exchange. head is the name of this head.
func NewLearnt(t *Tables, head string) *Learnt {
	l := &Learnt{tables: t, head: head, unsaved: &learnt.Book{}}
	l.all.Store(&learnt.Book{})
	return l
}

// Book returns what all heads had learnt at the last exchange. It must not be changed.
func (l *Learnt) Book() *learnt.Book { return l.all.Load() }

// Add counts a run that has ended. It is lost if this process ends before the next exchange.
func (l *Learnt) Add(r learnt.Run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unsaved.Add(r)
}

// Exchange reads what all heads have saved, and saves what this one has counted since, in one transaction: none where
// there is nothing. It must not be called by two goroutines at once.
func (l *Learnt) Exchange(ctx context.Context, now time.Time) error {
	documents, err := l.tables.Store.Documents(ctx, LearntDocument)
	if err != nil {
		return err
	}
	day, was := learnt.DayOf(now), documents[l.head]
	if s := l.saving; s != nil {
		l.saving = nil
		if !bytes.Equal(was.Value, s.doc) {
			l.putBack(day, s.part)
		}
	}
	part := l.take(day)
	own := []*learnt.Book{bookIn(was), part}
	var others []*learnt.Book
	var removed []store.Document
	for head, d := range documents {
		switch b := bookIn(d); {
		case head == l.head:
		case l.isGone(head):
			own, removed = append(own, b), append(removed, d)
		default:
			others = append(others, b)
		}
	}
	next := learnt.Merge(day, own...)
	l.all.Store(learnt.Merge(day, append(others, next)...))
	if len(part.Models) == 0 && len(removed) == 0 {
		return nil
	}
	return l.save(ctx, day, was, &saving{next.Encode(), part}, removed)
}

// save replaces this head's document. Where it is not known whether it did, the next exchange finds out.
func (l *Learnt) save(ctx context.Context, day int, was store.Document, s *saving, removed []store.Document) error {
	err := l.tables.Store.PutDocument(ctx, LearntDocument, l.head, was, s.doc, removed...)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, trivet.ErrUnknown):
		l.saving = s
		return err
	}
	l.putBack(day, s.part)
	if errors.Is(err, trivet.ErrConflict) { // another head was the first to add what a removed one had
		return nil
	}
	return err
}

// take returns what is not saved, and begins with nothing.
func (l *Learnt) take(day int) *learnt.Book {
	l.mu.Lock()
	defer l.mu.Unlock()
	part := l.unsaved
	part.Day, l.unsaved = day, &learnt.Book{}
	return part
}

// putBack adds what was not saved to what was counted meanwhile.
func (l *Learnt) putBack(day int, part *learnt.Book) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unsaved.Day = day
	l.unsaved = learnt.Merge(day, l.unsaved, part)
}

// isGone reports whether a head is no member any more.
func (l *Learnt) isGone(head string) bool {
	h, err := l.tables.Heads.GetShared(head)
	return errors.Is(err, trivet.ErrNotFound) || err == nil && h.Status.State == trivet.HeadRemoved
}

// bookIn returns the book in a document; an empty one where there is none, or that cannot be read.
func bookIn(d store.Document) *learnt.Book {
	if d.Err != nil || d.Value == nil {
		return &learnt.Book{}
	}
	b, err := learnt.Decode(d.Value)
	if err != nil {
		return &learnt.Book{}
	}
	return b
}
