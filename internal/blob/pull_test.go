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

// from makes a puller that asks these doors.
func from(t testing.TB, s *Store, urls ...string) *Puller {
	t.Helper()
	p := NewPuller(s, PullConfig{
		Locate:       func(_ context.Context, ref trivet.BlobRef) (trivet.BlobRef, []string, error) { return ref, urls, nil },
		StallTimeout: 300 * time.Millisecond, Pause: time.Millisecond, Timeout: time.Millisecond,
	})
	t.Cleanup(p.Close)
	return p
}

// door serves a puller's blobs to readers, who know what they want.
func (p *Puller) door(t testing.TB, ref trivet.BlobRef) (url string) {
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
func came(t testing.TB, p *Puller) float64 {
	t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(p.cfg.Metrics.bytes)
	families, err := reg.Gather()
	must(t, err)
	return families[0].GetMetric()[0].GetCounter().GetValue()
}

func TestPull(t *testing.T) {
	origin := open(t, Options{})
	door := serve(t, origin, nil)
	for _, size := range []int{0, 1, ChunkBytes, ChunkBytes + 1, 7*ChunkBytes + 3} {
		s := open(t, Options{})
		p := from(t, s, door)
		ref := put(t, origin, noise(size))
		d := digestOf(t, ref)
		if n, here := p.Progress(d); n != 0 || here {
			t.Errorf("%d bytes: %d are here before", size, n)
		}
		must(t, p.Pull(t.Context(), ref))
		must(t, s.Verify(t.Context(), d))
		if got, err := s.Stat(d); err != nil || got != ref {
			t.Errorf("%d bytes: %+v, %v", size, got, err)
		}
		if n, here := p.Progress(d); n != int64(size) || !here {
			t.Errorf("%d bytes: %d are here", size, n)
		}
		if n := came(t, p); n != float64(size) {
			t.Errorf("%d bytes: %v are counted", size, n)
		}
		must(t, p.Pull(t.Context(), ref))
		empty(t, s)
	}
}

// Spoilt heads are each followed by a good one, which is asked for no more than is missing.
func TestPullFailsOver(t *testing.T) {
	const at = 2*ChunkBytes + 1000 // where a head fails: in the third chunk
	origin := open(t, Options{})
	content := noise(4*ChunkBytes + 3)
	ref := put(t, origin, content)
	vanish := func(w http.ResponseWriter, r *http.Request) { // as a process that is killed
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			conn.Close()
		}
		panic(http.ErrAbortHandler)
	}
	for name, head := range map[string]func(http.Handler) http.Handler{
		"truncated":  afterBytes(at, abort),
		"vanishes":   afterBytes(at, vanish),
		"slow":       afterBytes(at, stall),
		"damaged":    always(corrupt(content, at)),
		"short":      always(content[:at]),
		"has it not": func(http.Handler) http.Handler { return http.NotFoundHandler() },
		"huge table": hugeTable,
		"not itself": otherTable(origin),
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, Options{})
			p := from(t, s, serve(t, origin, head), serve(t, origin, nil))
			must(t, p.Pull(t.Context(), ref))
			must(t, s.Verify(t.Context(), digestOf(t, ref)))
			if n := came(t, p); n != float64(len(content)) {
				t.Errorf("%v bytes were good, of %d", n, len(content))
			}
			empty(t, s)
		})
	}
}

// What no head gives ends with why, never as a blob, and goes on when one gives it.
func TestPullGivesUp(t *testing.T) {
	origin := open(t, Options{})
	content := noise(3*ChunkBytes + 3)
	ref := put(t, origin, content)
	other := put(t, origin, noise(3*ChunkBytes+4))
	for name, c := range map[string]struct {
		head func(http.Handler) http.Handler
		ref  trivet.BlobRef
		err  error
		got  int64 // kept for the next try
	}{
		"not there":        {func(http.Handler) http.Handler { return http.NotFoundHandler() }, ref, trivet.ErrNotFound, 0},
		"damaged":          {always(corrupt(content, ChunkBytes)), ref, trivet.ErrInvalid, ChunkBytes},
		"breaks off":       {once(afterBytes(2*ChunkBytes+1, abort)), ref, trivet.ErrUnavailable, 2 * ChunkBytes},
		"slow":             {func(http.Handler) http.Handler { return http.HandlerFunc(stall) }, ref, trivet.ErrUnavailable, 0},
		"of another blob":  {always(noise(3*ChunkBytes + 4)), trivet.BlobRef{Digest: ref.Digest, Bytes: other.Bytes, Chunks: other.Chunks}, trivet.ErrInvalid, -1},
		"too large":        {always(nil), trivet.BlobRef{Digest: ref.Digest, Bytes: 1 << 41, Chunks: ref.Chunks}, trivet.ErrInvalid, -1},
		"without a table":  {always(content), trivet.BlobRef{Digest: ref.Digest, Bytes: ref.Bytes}, trivet.ErrInvalid, -1},
		"that has no name": {always(content), trivet.BlobRef{Digest: "x"}, trivet.ErrInvalid, -1},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, Options{})
			heads := []string{serve(t, origin, c.head)}
			p := NewPuller(s, PullConfig{StallTimeout: 300 * time.Millisecond, Pause: time.Millisecond, Timeout: time.Millisecond,
				Locate: func(_ context.Context, ref trivet.BlobRef) (trivet.BlobRef, []string, error) {
					return ref, heads, nil
				}})
			defer p.Close()
			if err := p.Pull(t.Context(), c.ref); !errors.Is(err, c.err) {
				t.Fatalf("%v, not %v", err, c.err)
			}
			if c.got < 0 {
				empty(t, s)
				return
			}
			if s.Has(digestOf(t, ref)) {
				t.Fatal("it is here")
			}
			heads[0] = serve(t, origin, nil)
			must(t, p.Pull(t.Context(), ref))
			must(t, s.Verify(t.Context(), digestOf(t, ref)))
			if n := came(t, p); n != float64(len(content)) && c.got > 0 {
				t.Errorf("%v bytes came, of %d", n, len(content))
			}
			empty(t, s)
		})
	}
}

// once serves a content once; the head is ill then.
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

// Many want it at once and it comes once; who does not wait any more ends no pull.
func TestPullIsShared(t *testing.T) {
	origin := open(t, Options{})
	ref := put(t, origin, noise(3*ChunkBytes))
	var asked atomic.Int32
	begun, goOn := make(chan struct{}), make(chan struct{})
	door := serve(t, origin, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasSuffix(r.URL.Path, tableSuffix) {
				asked.Add(1)
				close(begun)
				<-goOn
			}
			next.ServeHTTP(w, r)
		})
	})
	p := NewPuller(open(t, Options{}), PullConfig{Locate: func(_ context.Context, ref trivet.BlobRef) (trivet.BlobRef, []string, error) {
		return ref, []string{door}, nil
	}})
	defer p.Close()
	short, leave := context.WithCancel(t.Context())
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
	leave()
	close(goOn)
	all.Wait()
	if n := asked.Load(); n != 1 {
		t.Errorf("asked for %d times", n)
	}
}
