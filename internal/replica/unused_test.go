package replica_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/blob"
)

// age makes a blob on all heads as old as if it had not been used for a time.
func (s *site) age(ref trivet.BlobRef, by time.Duration) {
	s.t.Helper()
	at := time.Now().Add(-by)
	for _, h := range s.heads {
		if !h.holds(ref) {
			continue
		}
		if err := os.Chtimes(filepath.Join(h.dir, ref.Digest[len("sha256:"):]), at, at); err != nil {
			s.t.Fatal(err)
		}
	}
}

// A blob that a record is about to refer to is not removed from any head that holds it, whichever head takes the
// record. Where no use was announced, it is removed.
func TestUseIsNotedOnHolders(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3)
	since := time.Now().Add(-time.Hour)
	for at := range s.heads {
		ref := s.heads[0].put(noise(1000 + at))
		if err := s.heads[0].blobs.Secure(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
		d := must(blob.ParseDigest(ref.Digest))(t)
		s.age(ref, 2*time.Hour)
		holders := s.holders(ref)
		if got, err := s.heads[at].blobs.Use(t.Context(), d); err != nil || got != ref {
			t.Fatal(got, err)
		}
		for _, h := range s.heads {
			if err := h.blobs.Collect(d, since); err == nil {
				t.Errorf("%s removed a blob that head%d is about to refer to", h.name, at)
			}
		}
		if n := s.holders(ref); n != holders || n < 2 {
			t.Errorf("of %d heads %d hold it", holders, n)
		}
		s.age(ref, 2*time.Hour)
		for _, h := range s.heads {
			if err := h.blobs.Collect(d, since); err != nil && !errors.Is(err, trivet.ErrNotFound) {
				t.Error(err)
			}
		}
		if n := s.holders(ref); n != 0 {
			t.Errorf("%d heads still hold it", n)
		}
		if _, err := s.heads[at].blobs.Use(t.Context(), d); !errors.Is(err, trivet.ErrNotFound) {
			t.Errorf("use of a blob that was removed: %v", err)
		}
	}
}

// What a record refers to is never removed, however old it is.
func TestReferencedBlobsStay(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	h := s.heads[0]
	used, unused := h.put(noise(100)), h.put(noise(200))
	s.image(used)
	s.age(used, 2*time.Hour)
	s.age(unused, 2*time.Hour)
	held, err := h.blobs.Unreferenced()
	if err != nil || len(held) != 1 || held[0].Digest.String() != unused.Digest {
		t.Errorf("not referenced: %+v, %v", held, err)
	}
	if n, b := h.metric("trivet_blobs_unreferenced"), h.metric("trivet_blobs_unreferenced_bytes"); n != 1 || b != 200 {
		t.Errorf("the metrics show %v blobs of %v bytes", n, b)
	}
	d := must(blob.ParseDigest(used.Digest))(t)
	if err := h.blobs.Collect(d, time.Now()); !errors.Is(err, trivet.ErrConflict) || !h.holds(used) {
		t.Errorf("a blob that an image refers to: %v", err)
	}
	if err := h.blobs.Collect(held[0].Digest, time.Now()); err != nil || h.holds(unused) {
		t.Errorf("a blob that nothing refers to: %v", err)
	}
	if n, b := h.metric("trivet_blobs_collected_total"), h.metric("trivet_blobs_collected_bytes_total"); n != 1 ||
		b != 200 {
		t.Errorf("the metrics show that %v blobs of %v bytes were removed", n, b)
	}
}
