package blob

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// A scrub passes each blob once a week, in order of digest, and goes on after a restart where it was.
func TestScrubOrder(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	s, err := Open(dir, Options{})
	must(t, err)
	var want []Digest
	for i := range 5 {
		want = append(want, digestOf(t, put(t, s, noise(100+i))))
	}
	slices.SortFunc(want, func(x, y Digest) int { return slices.Compare(x[:], y[:]) })
	for pass := range 2 {
		var got []Digest
		for {
			d, wait, err := s.NextScrub(now)
			must(t, err)
			if d == nil {
				if wait != scrubEvery {
					t.Errorf("the next pass begins in %s", wait)
				}
				break
			}
			if again, _, err := s.NextScrub(now.Add(scrubEvery)); err != nil || *again != *d {
				t.Errorf("before it was verified, %v follows %v: %v", again, d, err)
			}
			got = append(got, *d)
			must(t, s.Scrubbed(*d))
			must(t, s.Close())
			s, err = Open(dir, Options{})
			must(t, err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("pass %d: %v, not %v", pass, got, want)
		}
		now = now.Add(scrubEvery)
	}
	must(t, os.WriteFile(filepath.Join(dir, scrubFile), []byte("{"), 0o600))
	if d, _, err := s.NextScrub(now); err != nil || d == nil || *d != want[0] {
		t.Errorf("after a torn write: %v, %v", d, err)
	}
	must(t, s.Scrubbed(want[4]))
	if d, wait, err := s.NextScrub(now.Add(time.Hour)); err != nil || d != nil || wait != scrubEvery-time.Hour {
		t.Errorf("after the last one: %v, %s, %v", d, wait, err)
	}
	if d, _, err := s.NextScrub(now.Add(-time.Hour)); err != nil || d == nil || *d != want[0] {
		t.Errorf("after the clock was set back: %v, %v", d, err)
	}
	must(t, s.Close())
}
