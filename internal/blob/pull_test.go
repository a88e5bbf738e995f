package blob

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet"
)

// newTestPuller returns a puller that fetches from these heads.
func newTestPuller(t testing.TB, s *Store, urls ...string) *Puller {
	t.Helper()
	p := NewPuller(s, PullConfig{
		Locate: at(urls...), StallTimeout: time.Second, Pause: time.Millisecond, Timeout: time.Millisecond,
	})
	t.Cleanup(p.Close)
	return p
}

// at returns a PullConfig.Locate that finds every blob at these URLs.
func at(urls ...string) func(context.Context, trivet.BlobRef) (trivet.BlobRef, []string, error) {
	return func(_ context.Context, ref trivet.BlobRef) (trivet.BlobRef, []string, error) { return ref, urls, nil }
}

// startServer starts a server of the puller's blobs, which knows the reference of one.
func (p *Puller) startServer(t testing.TB, ref trivet.BlobRef) (url string) {
	t.Helper()
	srv := httptest.NewServer(p.Handler(func(_ context.Context, d Digest) (trivet.BlobRef, error) {
		if d.String() != ref.Digest {
			return ref, trivet.ErrNotFound
		}
		return ref, nil
	}))
	t.Cleanup(srv.Close)
	return srv.URL + "/blob/" + ref.Digest
}

func get(t testing.TB, url, ranges string) (status int, body []byte, err error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must(t, err)
	if ranges != "" {
		req.Header.Set("Range", ranges)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

// came is how many good bytes a puller got.
func pulledBytes(t testing.TB, p *Puller) float64 {
	t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(p.cfg.Metrics.bytes)
	families, err := reg.Gather()
	must(t, err)
	return families[0].GetMetric()[0].GetCounter().GetValue()
}

func TestPull(t *testing.T) {
	origin := open(t, Options{})
	url := serve(t, origin, nil)
	for _, size := range []int{0, 1, ChunkBytes, ChunkBytes + 1, 7*ChunkBytes + 3} {
		s := open(t, Options{})
		p := newTestPuller(t, s, url)
		ref := put(t, origin, noise(size))
		d := digestOf(t, ref)
		if n, complete := p.Progress(d); n != 0 || complete {
			t.Errorf("%d bytes: %d are present before the pull", size, n)
		}
		must(t, p.Pull(t.Context(), ref))
		must(t, s.Verify(t.Context(), d, nil))
		if got, err := s.Stat(d); err != nil || got != ref {
			t.Errorf("%d bytes: %+v, %v", size, got, err)
		}
		if n, complete := p.Progress(d); n != int64(size) || !complete {
			t.Errorf("%d bytes: %d are present", size, n)
		}
		if n := pulledBytes(t, p); n != float64(size) {
			t.Errorf("%d bytes: %v are counted", size, n)
		}
		must(t, p.Pull(t.Context(), ref))
		empty(t, s)
	}
}

// Each faulty head is followed by a good one, from which only what is missing is requested.
func TestPullFailsOver(t *testing.T) {
	const at = 2*ChunkBytes + 1000 // where a head fails: in the third chunk
	origin := open(t, Options{})
	content := noise(4*ChunkBytes + 3)
	ref := put(t, origin, content)
	vanish := func(w http.ResponseWriter, r *http.Request) { // like a process that is killed
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			conn.Close()
		}
		panic(http.ErrAbortHandler)
	}
	for name, head := range map[string]func(http.Handler) http.Handler{
		"truncated":   afterBytes(at, abort),
		"killed":      afterBytes(at, vanish),
		"stalls":      afterBytes(at, stall),
		"damaged":     always(corrupt(content, at)),
		"short":       always(content[:at]),
		"not found":   notFound,
		"huge table":  hugeTable,
		"other table": otherTable(origin),
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, Options{})
			p := newTestPuller(t, s, serve(t, origin, head), serve(t, origin, nil))
			must(t, p.Pull(t.Context(), ref))
			must(t, s.Verify(t.Context(), digestOf(t, ref), nil))
			if n := pulledBytes(t, p); n != float64(len(content)) {
				t.Errorf("%v bytes were pulled, of %d", n, len(content))
			}
			empty(t, s)
		})
	}
}

// A pull that no head can complete returns the reason, creates no blob, and resumes when a head has the blob.
func TestPullGivesUp(t *testing.T) {
	origin := open(t, Options{})
	content := noise(3*ChunkBytes + 3)
	ref := put(t, origin, content)
	other := put(t, origin, noise(3*ChunkBytes+4))
	for name, c := range map[string]struct {
		head func(http.Handler) http.Handler
		ref  trivet.BlobRef
		err  error
		got  int64 // kept for the next attempt
	}{
		"not found": {notFound, ref, trivet.ErrNotFound, 0},
		"damaged":   {always(corrupt(content, ChunkBytes)), ref, trivet.ErrInvalid, ChunkBytes},
		"aborted":   {once(afterBytes(2*ChunkBytes+1, abort)), ref, trivet.ErrUnavailable, 2 * ChunkBytes},
		"stalls":    {stalling, ref, trivet.ErrUnavailable, 0},
		"of another blob": {always(noise(3*ChunkBytes + 4)),
			trivet.BlobRef{Digest: ref.Digest, Bytes: other.Bytes, Chunks: other.Chunks}, trivet.ErrInvalid, -1},
		"too large": {always(nil),
			trivet.BlobRef{Digest: ref.Digest, Bytes: 1 << 41, Chunks: ref.Chunks}, trivet.ErrInvalid, -1},
		"without a table": {always(content),
			trivet.BlobRef{Digest: ref.Digest, Bytes: ref.Bytes}, trivet.ErrInvalid, -1},
		"invalid digest": {always(content), trivet.BlobRef{Digest: "x"}, trivet.ErrInvalid, -1},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, Options{})
			heads := []string{serve(t, origin, c.head)}
			p := NewPuller(s, PullConfig{
				StallTimeout: time.Second, Pause: time.Millisecond, Timeout: time.Millisecond,
				Locate: func(_ context.Context, ref trivet.BlobRef) (trivet.BlobRef, []string, error) {
					return ref, heads, nil
				},
			})
			defer p.Close()
			if err := p.Pull(t.Context(), c.ref); !errors.Is(err, c.err) {
				t.Fatalf("%v, not %v", err, c.err)
			}
			if c.got < 0 {
				empty(t, s)
				return
			}
			if s.Has(digestOf(t, ref)) {
				t.Fatal("the store has the blob")
			}
			heads[0] = serve(t, origin, nil)
			must(t, p.Pull(t.Context(), ref))
			must(t, s.Verify(t.Context(), digestOf(t, ref), nil))
			if n := pulledBytes(t, p); n != float64(len(content)) && c.got > 0 {
				t.Errorf("%v bytes were pulled, of %d", n, len(content))
			}
			empty(t, s)
		})
	}
}

// once serves the content once, and then responds that it is unavailable.
func once(wrap func(http.Handler) http.Handler) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		var served atomic.Bool
		head := wrap(next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasSuffix(r.URL.Path, tableSuffix) && served.Swap(true) {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			head.ServeHTTP(w, r)
		})
	}
}

// Concurrent pulls of a blob fetch it once. A caller whose context ends does not stop the pull.
func TestPullIsShared(t *testing.T) {
	origin := open(t, Options{})
	ref := put(t, origin, noise(3*ChunkBytes))
	var requests atomic.Int32
	begun, proceed := make(chan struct{}), make(chan struct{})
	url := serve(t, origin, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasSuffix(r.URL.Path, tableSuffix) {
				requests.Add(1)
				close(begun)
				<-proceed
			}
			next.ServeHTTP(w, r)
		})
	})
	p := NewPuller(open(t, Options{}), PullConfig{Locate: at(url)})
	defer p.Close()
	short, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := p.Pull(t.Context(), ref); err != nil {
				t.Error(err)
			}
		})
	}
	all.Go(func() {
		if err := p.Pull(short, ref); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	<-begun
	cancel()
	close(proceed)
	all.Wait()
	if n := requests.Load(); n != 1 {
		t.Errorf("fetched %d times", n)
	}
}
