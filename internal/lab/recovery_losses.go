package lab

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/recovery"
)

// written is a write that was acknowledged to a client.
type written struct {
	Kind     trivet.Kind
	Name     string
	Changes  int       // of the record until then: 0 is its creation
	Revision int64     // of the record
	At       time.Time // when the client had the response
}

// ledger remembers what was acknowledged, outside the heads.
type ledger struct {
	mu  sync.Mutex
	all []written // guarded by mu
}

func (l *ledger) add(r trivet.Record, changes int) {
	h := r.Header()
	w := written{trivet.KindOf(r), h.Name, changes, h.Revision, time.Now()}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, w)
}

func (l *ledger) writes() []written {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

// lossBound is what may be lost: what was written after a revision, and after a time.
type lossBound struct {
	Revision int64
	Time     time.Time
}

// nothing is the bound of what loses nothing.
var nothing = lossBound{Revision: math.MaxInt64}

// boundOf returns what a plan says.
func boundOf(p *recovery.Plan) lossBound {
	if p == nil {
		return nothing
	}
	return lossBound{p.Revision, p.DataTime}
}

func (b lossBound) covers(w written) bool { return w.Revision > b.Revision && !w.At.Before(b.Time) }

// recordID identifies a record.
type recordID struct {
	Kind trivet.Kind
	Name string
}

// countLost returns how many of the acknowledged writes are not in the records that are left, which have so many
// changes each, and how many of these the bound does not cover.
func countLost(writes []written, left map[recordID]int, b lossBound) (lost, outside int) {
	for _, w := range writes {
		if changes, ok := left[recordID{w.Kind, w.Name}]; ok && changes >= w.Changes {
			continue
		}
		lost++
		if !b.covers(w) {
			outside++
		}
	}
	return lost, outside
}

// blobsOutside returns how many blobs without any good copy the plan does not name.
func blobsOutside(copies []trivet.BlobCopy, p *recovery.Plan) (n int) {
	good := map[string]bool{}
	for _, c := range copies {
		if c.Digest != "" { // else the head does not respond, and is no copy
			good[c.Digest] = good[c.Digest] || !c.Bad()
		}
	}
	if p != nil {
		for _, b := range p.MissingBlobs {
			good[b.Digest] = true
		}
	}
	for _, ok := range good {
		if !ok {
			n++
		}
	}
	return n
}
