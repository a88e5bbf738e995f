package recovery

import (
	"context"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/archive"
	"github.com/trivet-project/trivet/internal/auth"
)

// Series is the backups that one schedule has made in one place. Others there are never removed for it: those of other
// schedules and of operators, of the cluster before a recovery, and what only looks like one of its own.
type Series struct {
	In          Location
	Schedule    string // its UID
	Incarnation string // of the cluster
	Keys        *auth.Keys
	// Proven is the revision of the last backup that was proven to be restorable; 0: none. A later one is left of an
	// attempt that failed.
	Proven int64
}

// NewSeries returns the series of a schedule.
func NewSeries(in Location, schedule *trivet.BackupSchedule, site *trivet.Site, keys *auth.Keys) *Series {
	s := &Series{In: in, Schedule: schedule.UID, Incarnation: incarnationOf(site), Keys: keys}
	if last := schedule.Status.Last; last != nil {
		s.Proven = last.Revision
	}
	return s
}

// has reports whether a backup is one of the series.
func (s *Series) has(e *Entry) bool {
	f := e.file
	return f != nil && f.Schedule != "" && f.Schedule == s.Schedule && f.Incarnation == s.Incarnation &&
		f.Cluster == s.Keys.CA.Cluster() && madeBy(f, s.Keys) == nil
}

// Before removes what is left of former attempts but the newest one, which may be good, and the proven ones beyond
// keep, so that there is room for another one.
func (s *Series) Before(ctx context.Context, keep int) (Pruned, error) {
	left, proven := 0, 0
	return prune(ctx, s.In, nil, func(e *Entry) bool {
		switch {
		case !s.has(e):
			return true
		case e.Revision > s.Proven:
			left++
			return left == 1
		}
		proven++
		return proven <= keep
	})
}

// Failed removes what is left of former attempts, and the damaged contents of blobs, so that they are copied again.
// made is what this attempt made, which was not proven: it is kept, and so are all that were.
func (s *Series) Failed(ctx context.Context, made string, damaged []string) (Pruned, error) {
	return prune(ctx, s.In, damaged, func(e *Entry) bool {
		return !s.has(e) || e.Name == made || e.Revision <= s.Proven
	})
}

// Succeeded removes what is left of former attempts, and all but the newest ones of those that were proven. made is
// what this attempt made, which was.
func (s *Series) Succeeded(ctx context.Context, made string, keep int) (Pruned, error) {
	proven := 0
	return prune(ctx, s.In, nil, func(e *Entry) bool {
		switch {
		case !s.has(e):
			return true
		case e.Name != made && e.Revision > s.Proven:
			return false
		}
		proven++
		return e.Name == made || proven <= keep
	})
}

// provenBlobs returns the digests of the blobs whose contents were read when a backup in the same place was proven;
// none where that is not there, or was made without contents.
func provenBlobs(ctx context.Context, p place, name string, keys *auth.Keys) (map[string]bool, error) {
	if name == "" {
		return nil, nil
	}
	f, err := openArchive(ctx, p, name)
	if isOfServer(err) {
		return nil, err
	}
	if err != nil {
		return nil, nil
	}
	defer f.Close()
	return digestsIn(f, keys), nil
}

func digestsIn(f *archive.File, keys *auth.Keys) map[string]bool {
	if !f.Contents || madeBy(f, keys) != nil {
		return nil
	}
	all := map[string]bool{}
	for _, b := range f.Blobs {
		all[b.Digest] = true
	}
	return all
}
