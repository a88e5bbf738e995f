package blob

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
)

// age makes the files of a blob as old as if it had not been used for a time.
func age(t testing.TB, s *Store, d Digest, by time.Duration) {
	t.Helper()
	at := time.Now().Add(-by)
	must(t, os.Chtimes(s.path(d), at, at))
}

// A blob that was not used for a while is removed with its chunk table, and what an interrupted pull left, too. One
// that was announced or served since stays.
func TestDeleteUnused(t *testing.T) {
	t.Parallel()
	s := open(t, Options{})
	since := time.Now().Add(-2 * time.Hour)
	for name, use := range map[string]func(d Digest){
		"announced": func(d Digest) {
			if ref, err := s.Use(d); err != nil || ref.Digest != d.String() {
				t.Errorf("%+v, %v", ref, err)
			}
		},
		"served": func(d Digest) {
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/blob/"+d.String(), nil))
			if w.Code != http.StatusOK {
				t.Errorf("%d", w.Code)
			}
		},
		"stored again": func(d Digest) { put(t, s, noise(100)) },
	} {
		d := digestOf(t, put(t, s, noise(100)))
		age(t, s, d, 3*time.Hour)
		use(d)
		if err := s.DeleteUnused(d, since); !errors.Is(err, trivet.ErrConflict) || !s.Has(d) {
			t.Errorf("%s: %v", name, err)
		}
	}
	d := digestOf(t, put(t, s, noise(100)))
	age(t, s, d, 3*time.Hour)
	held, err := s.Held()
	if err != nil || len(held) != 1 || held[0].Digest != d || held[0].Bytes != 100 || held[0].Used.After(since) {
		t.Errorf("held: %+v, %v", held, err)
	}
	pulled := Digest{1}
	must(t, os.WriteFile(s.path(pulled)+pullSuffix, noise(50), 0o600))
	at := time.Now().Add(-3 * time.Hour)
	must(t, os.Chtimes(s.path(pulled)+pullSuffix, at, at))
	for _, d := range []Digest{d, pulled} {
		must(t, s.DeleteUnused(d, since))
		if err := s.DeleteUnused(d, since); !errors.Is(err, trivet.ErrNotFound) {
			t.Errorf("again: %v", err)
		}
	}
	if _, err := s.Use(d); !errors.Is(err, trivet.ErrNotFound) {
		t.Errorf("use of what was removed: %v", err)
	}
	empty(t, s)
}

// What a use has found is not removed, however close the two are.
func TestUseOrDelete(t *testing.T) {
	t.Parallel()
	s := open(t, Options{})
	for range 100 {
		d := digestOf(t, put(t, s, noise(10)))
		age(t, s, d, 3*time.Hour)
		var both sync.WaitGroup
		var used, deleted error
		both.Go(func() { _, used = s.Use(d) })
		both.Go(func() { deleted = s.DeleteUnused(d, time.Now().Add(-time.Hour)) })
		both.Wait()
		if (used == nil) == (deleted == nil) || (used == nil) != s.Has(d) {
			t.Fatalf("used: %v, deleted: %v, there: %v", used, deleted, s.Has(d))
		}
	}
}
