package recovery_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/recovery"
	"github.com/trivet-project/trivet/internal/store"
)

// scheduled is a site whose backups are made by a schedule.
type scheduled struct {
	*site
	schedule string
}

func (s scheduled) Backup(ctx context.Context, contents bool) (io.ReadCloser, error) {
	b, err := s.source.Begin(ctx, contents, s.schedule)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	var file bytes.Buffer
	_, err = b.WriteTo(&file)
	return io.NopCloser(&file), err
}

// made makes backups by a schedule, each with another revision.
func (s *site) made(dir, schedule string, n int) (names []string) {
	s.t.Helper()
	for range n {
		s.touch()
		c, err := recovery.Create(s.t.Context(), at(dir), scheduled{s, schedule}, true, nil)
		if err != nil {
			s.t.Fatal(err)
		}
		names = append(names, c.Name)
	}
	return names
}

// touch increases the revision.
func (s *site) touch() {
	s.t.Helper()
	s.update(func(tx *store.Tx) error {
		m, err := s.tables.Machines.In(tx).Get("m1")
		if err != nil {
			return err
		}
		m.Spec.Cordoned = !m.Spec.Cordoned
		return s.tables.Machines.In(tx).Put(m)
	})
}

func backupsIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := recovery.List(t.Context(), at(dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		names = append(names, e.Name)
	}
	slices.Sort(names)
	return names
}

// Only the backups of the own series are removed: not those of operators, other schedules, former incarnations, and
// others that only name it.
func TestSeriesIsKnown(t *testing.T) {
	s, dir := newSite(t, trivet.CurrentRelease), t.TempDir()
	byHand := s.mustCreate(dir, true).Name
	other := s.made(dir, "uid-2", 2)
	own := s.made(dir, "uid-1", 3)
	forged := fakeBackup(t, dir, "c1", 1000)
	s.update(func(tx *store.Tx) error {
		conf, err := s.tables.Sites.In(tx).Get(trivet.SiteName)
		if err != nil {
			return err
		}
		conf.Status.Recovered = &trivet.Recovered{Incarnation: "1-abc"}
		return s.tables.Sites.In(tx).Put(conf)
	})
	later := s.made(dir, "uid-1", 1)
	series := &recovery.Series{In: at(dir), Schedule: "uid-1", Keys: s.keys, Proven: 1 << 40}
	p, err := series.Before(t.Context(), 1)
	if err != nil || !slices.Equal(p.Removed, []string{own[1], own[0]}) {
		t.Fatalf("removed %q, %v; want %q", p.Removed, err, own[:2])
	}
	want := append(append([]string{byHand, forged, own[2]}, other...), later...)
	slices.Sort(want)
	if left := backupsIn(t, dir); !slices.Equal(left, want) {
		t.Errorf("left %q, want %q", left, want)
	}
}

// What attempts that failed have left is one backup at most, and never replaces one that was proven.
func TestSeriesKeepsWhatIsProven(t *testing.T) {
	s, dir := newSite(t, trivet.CurrentRelease), t.TempDir()
	own := s.made(dir, "uid-1", 6)
	all, err := recovery.List(t.Context(), at(dir))
	if err != nil {
		t.Fatal(err)
	}
	series := &recovery.Series{In: at(dir), Schedule: "uid-1", Keys: s.keys, Proven: all[3].Revision} // own[2]
	expect := func(what string, p recovery.Pruned, err error, want ...string) {
		t.Helper()
		slices.Sort(want)
		if left := backupsIn(t, dir); err != nil || !slices.Equal(left, want) {
			t.Fatalf("%s: %v; left %q, want %q", what, err, left, want)
		}
	}
	p, err := series.Before(t.Context(), 2)
	expect("before", p, err, own[1], own[2], own[5])
	made := s.made(dir, "uid-1", 1)[0]
	p, err = series.Failed(t.Context(), made, []string{blobName(t, dir)})
	expect("after a failure", p, err, own[1], own[2], made)
	if left, _ := os.ReadDir(filepath.Join(dir, "blobs")); len(left) != 0 {
		t.Errorf("the damaged content is left: %v", left)
	}
	next := s.made(dir, "uid-1", 1)[0]
	p, err = series.Succeeded(t.Context(), next, 2)
	expect("after a success", p, err, own[2], next)
	series.Proven = 0
	p, err = series.Before(t.Context(), 1)
	expect("where none was proven", p, err, next)
}
