package replica_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/blob"
)

func (h *head) path(ref trivet.BlobRef) string {
	return filepath.Join(h.dir, ref.Digest[len("sha256:"):])
}

// flip flips a bit of a blob's file.
func (h *head) flip(ref trivet.BlobRef, at int64) {
	h.site.t.Helper()
	f := must(os.OpenFile(h.path(ref), os.O_RDWR, 0))(h.site.t)
	defer f.Close()
	b := make([]byte, 1)
	_, err := f.ReadAt(b, at)
	b[0] ^= 1
	_, failed := f.WriteAt(b, at)
	if err := errors.Join(err, failed); err != nil {
		h.site.t.Fatal(err)
	}
}

// imported returns a blob that an image refers to and all heads hold.
func (s *site) imported(size int) trivet.BlobRef {
	s.t.Helper()
	ref := s.heads[0].put(noise(size))
	s.image(ref)
	for _, h := range s.heads {
		if _, err := h.blobs.Ensure(s.t.Context(), ref.Digest); err != nil {
			s.t.Fatal(err)
		}
	}
	return ref
}

// event returns a head's event of a blob.
func (h *head) event(ref trivet.BlobRef) trivet.EventSpec {
	e, err := h.site.tables.Events.Get(h.site.t.Context(), "head."+h.name+".blob."+ref.Digest[len("sha256:"):][:1])
	if err != nil {
		return trivet.EventSpec{}
	}
	return e.Spec
}

func (s *site) await(what string, condition func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatal("timeout: " + what)
		}
	}
}

// run runs the head's scrub until the returned function is called.
func (h *head) run() (stop func()) {
	ctx, cancel := context.WithCancel(h.site.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); h.blobs.Run(ctx) }()
	return func() { cancel(); <-done }
}

// The scrub finds a copy with a flipped bit, names it, and repairs it from another head, also where no record refers
// to the blob. It does so once: the pass is not repeated.
func TestScrubRepairs(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3)
	used, good := s.imported(2*blob.ChunkBytes+5), s.imported(1000)
	unused := s.heads[0].put(noise(3000))
	if err := s.heads[0].blobs.Secure(t.Context(), unused); err != nil {
		t.Fatal(err)
	}
	bad := s.heads[0]
	bad.flip(used, blob.ChunkBytes+9)
	bad.flip(unused, 9)
	defer bad.run()()
	s.await("both are repaired", func() bool { return bad.metric("trivet_blobs_repaired_total") == 2 })
	for _, ref := range []trivet.BlobRef{used, unused, good} {
		if !bad.holds(ref) {
			t.Errorf("%s is not repaired", ref.Digest)
		}
	}
	s.await("all are verified", func() bool { return bad.metric("trivet_blobs_verified_total") == 3 })
	if n := bad.metric("trivet_blobs_damaged_total"); n != 2 {
		t.Errorf("%v were damaged", n)
	}
	if n := bad.metric("trivet_blobs_verified_bytes_total"); n != float64(used.Bytes+unused.Bytes+good.Bytes) {
		t.Errorf("%v bytes were read", n)
	}
	s.await("the event", func() bool { return bad.event(used).Reason == trivet.ReasonBlobRepaired })
	if e := bad.event(used); !strings.Contains(e.Message, "sha256:") || e.Subject != "head/head0" {
		t.Errorf("%+v", e)
	}
}

// Where no other head has a good copy, the scrub names the blob, serves it no more, and says what to do. Imported
// again, it is whole.
func TestScrubOfOnlyCopy(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	h, content := s.heads[0], noise(1000)
	ref := s.imported(1000)
	h.flip(ref, 9)
	defer h.run()()
	s.await("the event", func() bool { return h.event(ref).Reason == trivet.ReasonBlobDamaged })
	e := h.event(ref)
	for _, want := range []string{ref.Digest, "damaged in the 4194304 bytes at 0", "import the image or platform again",
		"restore its contents from a backup"} {
		if !strings.Contains(e.Message, want) || !e.Warning {
			t.Errorf("%q lacks %q", e.Message, want)
		}
	}
	if missing := h.blobs.Missing(); len(missing) != 1 || missing[0] != ref {
		t.Errorf("missing are %v", missing)
	}
	copies, err := s.check(h, trivet.BlobCheck{Repair: true})
	if want := "head0 missing it cannot be repaired: not found: no head holds it"; err != nil ||
		!slices.Equal(copies, []string{want}) {
		t.Errorf("%q, %v", copies, err)
	}
	if again := h.put(content); again != ref {
		t.Fatal(again)
	}
	s.await("the event", func() bool { return h.event(ref).Reason == trivet.ReasonBlobRepaired })
	if copies, err := s.check(h, trivet.BlobCheck{}); err != nil || !slices.Equal(copies, []string{"head0 good"}) {
		t.Errorf("%q, %v", copies, err)
	}
}

// check returns the results of a check as text, sorted.
func (s *site) check(h *head, req trivet.BlobCheck) (copies []string, err error) {
	s.t.Helper()
	err = h.blobs.Check(s.t.Context(), req, func(c trivet.BlobCopy) error {
		if c.State != trivet.CopyChecking {
			copies = append(copies, strings.TrimSpace(fmt.Sprint(c.Head, " ", c.State, " ", c.Problem)))
		}
		return nil
	})
	slices.Sort(copies)
	return copies, err
}

// A check names the copies that are damaged, on any head, and a repair fetches them from a good one.
func TestCheckAndRepair(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3)
	ref, other := s.imported(blob.ChunkBytes+5), s.imported(1000)
	s.heads[2].flip(ref, blob.ChunkBytes+1)
	if err := os.Remove(s.heads[1].path(ref)); err != nil {
		t.Fatal(err)
	}
	only := trivet.BlobCheck{Digests: []string{ref.Digest}}
	for _, c := range []struct {
		req  trivet.BlobCheck
		want []string
	}{
		{trivet.BlobCheck{Digests: []string{other.Digest}}, []string{"head0 good", "head1 good", "head2 good"}},
		{only, []string{"head0 good", "head1 missing",
			"head2 damaged invalid: damaged in the 4194304 bytes at 4194304"}},
		{only, []string{"head0 good", "head1 missing", "head2 missing"}},
		{trivet.BlobCheck{Digests: only.Digests, Repair: true}, []string{"head0 good", "head1 repaired", "head2 repaired"}},
		{trivet.BlobCheck{}, []string{"head0 good", "head0 good", "head1 good", "head1 good", "head2 good", "head2 good"}},
	} {
		if got, err := s.check(s.heads[0], c.req); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%+v: %q, %v, want %q", c.req, got, err, c.want)
		}
	}
	if n := s.holders(ref); n != 3 {
		t.Errorf("%d heads hold it", n)
	}
}

// A head that does not know checks, as of an earlier release, stops within one, or is down, has unknown copies; the
// others are checked.
func TestCheckWithFaultyHeads(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3)
	s.imported(1000)
	faulty := func(status int) func(http.Handler) http.Handler {
		return func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		}
	}
	s.heads[1].inject(faulty(http.StatusNotFound))
	s.heads[2].inject(faulty(http.StatusOK))
	got, err := s.check(s.heads[0], trivet.BlobCheck{})
	if want := []string{"head0 good", "head1 unknown unavailable: it responds with 404 Not Found",
		"head2 unknown unavailable: it stopped before the end of the check"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	s.heads[2].stop()
	if got, err := s.check(s.heads[0], trivet.BlobCheck{}); err != nil || len(got) != 3 ||
		!strings.HasPrefix(got[2], "head2 unknown unavailable: ") {
		t.Errorf("%q, %v", got, err)
	}
}

// A check that is cancelled ends on all heads, and decides nothing about copies that were not read to their end.
func TestCheckIsCancelled(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2)
	ref := s.imported(64 * blob.ChunkBytes) // two seconds
	for _, h := range s.heads {
		h.flip(ref, 64*blob.ChunkBytes-1)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	progress := map[string]bool{}
	err := s.heads[0].blobs.Check(ctx, trivet.BlobCheck{}, func(c trivet.BlobCopy) error {
		if c.State == trivet.CopyChecking && c.Bytes > 0 {
			progress[c.Head] = true
		}
		if len(progress) == 2 {
			cancel(stopped)
		}
		return nil
	})
	if !errors.Is(err, stopped) {
		t.Fatalf("%v; progress of %v", err, progress)
	}
	read := func() (n float64) {
		for _, h := range s.heads {
			n += h.metric("trivet_blobs_verified_bytes_total")
		}
		return n
	}
	before := -1.0
	s.await("no head reads any more", func() bool {
		now := read()
		same := now == before
		before = now
		time.Sleep(50 * time.Millisecond)
		return same
	})
	for _, h := range s.heads {
		if h.metric("trivet_blobs_damaged_total") != 0 || h.metric("trivet_blobs_verified_total") != 0 {
			t.Errorf("%s has decided", h.name)
		}
	}
	if read() >= float64(2*ref.Bytes) {
		t.Errorf("both were read to their end")
	}
}
