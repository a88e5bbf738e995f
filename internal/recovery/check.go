package recovery

import (
	"context"
	"errors"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// check checks every value of a restored store, and what must hold among its records.
func (r *Report) check(ctx context.Context, tables *state.Tables) error {
	err := tables.Store.Check(ctx, func(c store.Checked) {
		r.Values++
		switch {
		case c.Err != nil:
			r.add("%s: %s", strings.TrimPrefix(c.Key, "/trivet/"), problemOf(c.Err))
		case c.Record != nil:
			r.Records[strings.ToLower(string(trivet.KindOf(c.Record)))]++
			if err := c.Record.Validate(); err != nil { // as before it was written
				r.add("%s: %s", nameOfRecord(c.Record), err)
			}
			r.checkReferences(tables.Store, c.Record)
		}
	})
	if err != nil {
		return err
	}
	if got := tables.Store.Revision(); got < r.Revision {
		r.add("the store is at revision %d, and the manifest says %d", got, r.Revision)
	}
	if _, err := tables.Sites.Get(trivet.SiteName); err != nil {
		r.add("there is no site")
	}
	r.checkRuns(tables)
	r.checkBlobUses(tables)
	return nil
}

// checkReferences checks that a record's references hold whose target cannot be deleted before it.
func (r *Report) checkReferences(s *store.Store, rec trivet.Record) {
	for _, ref := range trivet.ReferencesFrom(trivet.KindOf(rec)) {
		if ref.OnDelete != trivet.DeletionRefused {
			continue
		}
		for _, target := range ref.Targets(rec) {
			raw, err := s.Get(ref.To, target.Name)
			switch {
			case errors.Is(err, trivet.ErrNotFound):
				r.add("%s: %s refers to %s %s, which is missing", nameOfRecord(rec), ref.Field,
					strings.ToLower(string(ref.To)), trivet.ShortName(target.Name))
			case err != nil || raw.Record() == nil: // reported as a value
			case !target.Is(raw.Record().Header()):
				r.add("%s: %s refers to another %s %s", nameOfRecord(rec), ref.Field, strings.ToLower(string(ref.To)),
					trivet.ShortName(target.Name))
			}
		}
	}
}

// checkRuns checks that a machine and its run, while that has not ended, name each other.
func (r *Report) checkRuns(tables *state.Tables) {
	for m := range tables.Machines.AllShared() {
		if m.Status.Workflow == "" {
			continue
		}
		w, err := tables.Workflows.Get(trivet.Resolve("", m.Status.Workflow))
		if err == nil && !w.Status.State.Ended() && w.Spec.Machine != m.Name {
			r.add("%s: its run %s is one of machine %s", nameOfRecord(m), w.ShortName(), w.Spec.Machine)
		}
	}
}

// checkBlobUses checks that the manifest has the blobs that records refer to.
func (r *Report) checkBlobUses(tables *state.Tables) {
	known := map[string]bool{}
	for _, digits := range r.blobs {
		known["sha256:"+digits] = true
	}
	for use := range tables.BlobUses() {
		if !known[use.Ref.Digest] {
			r.add("%s %s: its blob %s is not in the manifest", strings.ToLower(string(use.Kind)), use.Name,
				use.Ref.Digest)
			known[use.Ref.Digest] = true
		}
	}
}

func nameOfRecord(rec trivet.Record) string {
	return strings.ToLower(string(trivet.KindOf(rec))) + " " + rec.Header().ShortName()
}
