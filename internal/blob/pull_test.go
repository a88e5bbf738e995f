package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
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

// gate serves no more of a blob than the test lets through, whatever the range. Each chunk is waited for.
type gate struct {
	open  chan struct{} // one for each chunk
	asked chan string   // ranges
}

func (g *gate) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, tableSuffix) {
			next.ServeHTTP(w, r)
			return
		}
		g.asked <- r.Header.Get("Range")
		next.ServeHTTP(&gated{ResponseWriter: w, gate: g, r: r}, r)
	})
}

type gated struct {
	http.ResponseWriter
	gate *gate
	r    *http.Request
	left int
}

func (g *gated) Write(p []byte) (n int, err error) {
	for len(p) > 0 && err == nil {
		if g.left == 0 {
			select {
			case <-g.gate.open:
				g.left = ChunkBytes
			case <-g.r.Context().Done():
				return n, g.r.Context().Err()
			}
		}
		var m int
		m, err = g.ResponseWriter.Write(p[:min(len(p), g.left)])
		n, g.left, p = n+m, g.left-m, p[m:]
		if g.left == 0 {
			_ = http.NewResponseController(g.ResponseWriter).Flush()
		}
	}
	return n, err
}

// A miss is served while it comes, and a range is fetched before what nobody waits for.
func TestMissIsServedWhileItComes(t *testing.T) {
	origin := open(t, Options{})
	content := noise(6*ChunkBytes + 5)
	ref := put(t, origin, content)
	g := &gate{open: make(chan struct{}), asked: make(chan string, 100)}
	s := open(t, Options{})
	p := NewPuller(s, PullConfig{StallTimeout: time.Minute, Locate: func(_ context.Context, ref trivet.BlobRef) (trivet.BlobRef, []string, error) {
		return ref, []string{serve(t, origin, g.wrap)}, nil
	}})
	defer p.Close()
	door := p.door(t, ref)
	go func() { g.open <- struct{}{} }()
	resp, err := http.Get(door)
	must(t, err)
	defer resp.Body.Close()
	first := make([]byte, ChunkBytes-8<<10) // net/http holds some back
	if _, err := io.ReadFull(resp.Body, first); err != nil || !bytes.HasPrefix(content, first) || resp.ContentLength != ref.Bytes {
		t.Fatalf("the first chunk, of %d bytes in all: %v", resp.ContentLength, err)
	}
	if s.Has(digestOf(t, ref)) {
		t.Fatal("it is whole already")
	}
	if status, table, err := get(t, door+tableSuffix, ""); status != http.StatusOK || DigestOf(table).String() != ref.Chunks || err != nil {
		t.Errorf("the table: %d, %v", status, err)
	}
	ranged := make(chan struct{})
	go func() {
		defer close(ranged)
		status, body, err := get(t, door, fmt.Sprintf("bytes=%d-%d", 4*ChunkBytes+7, 4*ChunkBytes+9))
		if status != http.StatusPartialContent || err != nil || !bytes.Equal(body, content[4*ChunkBytes+7:4*ChunkBytes+10]) {
			t.Errorf("the range: %d, %v", status, err)
		}
	}()
	<-g.asked
	p.mu.Lock()
	l := p.pulls[digestOf(t, ref)]
	p.mu.Unlock()
	for waits := false; !waits; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		waits = slices.Contains(l.requested, 4)
		l.mu.Unlock()
	}
	for at := ""; at == ""; { // a chunk that was on its way comes first, then a jump to the range
		select {
		case g.open <- struct{}{}:
		case at = <-g.asked:
			if at != fmt.Sprintf("bytes=%d-", 4*ChunkBytes) {
				t.Fatalf("asked for %q", at)
			}
		}
	}
	close(g.open)
	<-ranged
	rest, err := io.ReadAll(resp.Body)
	if err != nil || !bytes.Equal(append(first, rest...), content) {
		t.Errorf("%d bytes, %v", len(first)+len(rest), err)
	}
	must(t, p.Pull(t.Context(), ref))
	must(t, s.Verify(t.Context(), digestOf(t, ref)))
	if n := came(t, p); n != float64(len(content)) {
		t.Errorf("%v bytes came, of %d", n, len(content))
	}
}

// Who asks for what no head has is told so; who reads what cannot go on gets a short answer, not a wrong one.
func TestMissThatFails(t *testing.T) {
	origin := open(t, Options{})
	content := noise(3*ChunkBytes + 3)
	ref := put(t, origin, content)
	for name, c := range map[string]struct {
		head   func(http.Handler) http.Handler
		status int
	}{
		"not there":  {func(http.Handler) http.Handler { return http.NotFoundHandler() }, http.StatusNotFound},
		"ill":        {answer(http.StatusServiceUnavailable), http.StatusServiceUnavailable},
		"damaged":    {always(corrupt(content, ChunkBytes+1)), 0},
		"breaks off": {once(afterBytes(ChunkBytes+9, abort)), 0},
	} {
		s := open(t, Options{})
		status, body, err := get(t, from(t, s, serve(t, origin, c.head)).door(t, ref), "")
		if c.status != 0 && status != c.status || c.status == 0 && (err == nil || !bytes.HasPrefix(content, body) || len(body) > ChunkBytes) {
			t.Errorf("%s: %d, %d bytes, %v", name, status, len(body), err)
		}
		if s.Has(digestOf(t, ref)) {
			t.Errorf("%s: it is here", name)
		}
	}
	s := open(t, Options{})
	door := from(t, s, serve(t, origin, nil)).door(t, ref)
	if status, _, err := get(t, strings.TrimSuffix(door, ref.Digest)+Digest{1}.String(), ""); status != http.StatusNotFound || err != nil {
		t.Errorf("what nobody knows: %d, %v", status, err)
	}
	if status, _, err := get(t, door+"x", ""); status != http.StatusBadRequest || err != nil {
		t.Errorf("no digest: %d, %v", status, err)
	}
}

// A pull that waits for its turn behind others gets it at once when a reader comes, or somebody who waits.
func TestReadersGoFirst(t *testing.T) {
	origin := open(t, Options{})
	hang := serve(t, origin, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { stall(w, r) })
	})
	good := serve(t, origin, nil)
	wanted, too := put(t, origin, noise(5)), put(t, origin, noise(6))
	located := make(chan string, 100)
	p := NewPuller(open(t, Options{}), PullConfig{StallTimeout: time.Hour, Locate: func(_ context.Context, ref trivet.BlobRef) (trivet.BlobRef, []string, error) {
		located <- ref.Digest
		if ref == wanted || ref == too {
			return ref, []string{good}, nil
		}
		return ref, []string{hang}, nil
	}})
	defer p.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range maxBackground {
		ref := refOf(noise(100 + i))
		go p.Pull(ctx, ref)
		<-located
	}
	waits := make(chan error)
	go func() { waits <- p.Pull(ctx, wanted) }()
	if status, body, err := get(t, p.door(t, wanted), ""); status != http.StatusOK || err != nil || len(body) != 5 {
		t.Errorf("%d, %v", status, err)
	}
	must(t, <-waits)
	must(t, p.PullUrgent(ctx, too))
}

// A pull goes on after kill -9 with the chunks that are good, wherever in the blob they are.
func TestPullOutlivesKill(t *testing.T) {
	origin := open(t, Options{})
	content := noise(8*ChunkBytes + 3)
	ref := put(t, origin, content)
	g := &gate{open: make(chan struct{}), asked: make(chan string, 100)}
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestPullToBeKilled$")
	cmd.Env = append(os.Environ(), "BLOB_PULL_DIR="+dir, "BLOB_PULL_FROM="+serve(t, origin, g.wrap),
		"BLOB_PULL_REF="+fmt.Sprintf("%s %d %s", ref.Digest, ref.Bytes, ref.Chunks))
	out := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	must(t, cmd.Start())
	for range 5 {
		g.open <- struct{}{} // taken when the chunk before it has been read from the pipe's other end
	}
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	d := digestOf(t, ref)
	s, err := Open(dir, Options{})
	must(t, err)
	defer s.Close()
	if s.Has(d) {
		t.Fatal("it is here")
	}
	flip(t, s.path(d)+pullSuffix, 5) // the disk lied about the first chunk
	p := from(t, s, serve(t, origin, nil))
	must(t, p.Pull(t.Context(), ref))
	must(t, s.Verify(t.Context(), d))
	n := int64(came(t, p))
	if n >= ref.Bytes || n < ChunkBytes+3*ChunkBytes {
		t.Errorf("%d of %d bytes came again; the killed one said: %s", n, ref.Bytes, out)
	}
	empty(t, s)
}

func TestPullToBeKilled(t *testing.T) {
	dir := os.Getenv("BLOB_PULL_DIR")
	if dir == "" {
		return // it is a process of TestPullOutlivesKill
	}
	var ref trivet.BlobRef
	_, err := fmt.Sscan(os.Getenv("BLOB_PULL_REF"), &ref.Digest, &ref.Bytes, &ref.Chunks)
	must(t, err)
	s, err := Open(dir, Options{})
	must(t, err)
	p := NewPuller(s, PullConfig{Locate: func(_ context.Context, ref trivet.BlobRef) (trivet.BlobRef, []string, error) {
		return ref, []string{os.Getenv("BLOB_PULL_FROM")}, nil
	}})
	must(t, p.Pull(t.Context(), ref))
}

// What is left of pulls goes when it is of no use.
func TestPullsAreSwept(t *testing.T) {
	s := open(t, Options{UploadTimeout: time.Hour})
	there, old, fresh := digestOf(t, put(t, s, noise(3))), Digest{1}, Digest{2}
	for _, d := range []Digest{there, old, fresh} {
		must(t, os.WriteFile(s.path(d)+pullSuffix, []byte("x"), 0o600))
	}
	long := time.Now().Add(-2 * time.Hour)
	must(t, os.Chtimes(s.path(old)+pullSuffix, long, long))
	must(t, s.sweep())
	for d, want := range map[Digest]bool{there: false, old: false, fresh: true} {
		if _, err := os.Stat(s.path(d) + pullSuffix); (err == nil) != want {
			t.Errorf("%s: %v", d, err)
		}
	}
	must(t, os.Remove(s.path(fresh)+pullSuffix))
}

func TestPullWithoutRoom(t *testing.T) {
	origin := open(t, Options{})
	ref := put(t, origin, noise(2*ChunkBytes))
	s := open(t, Options{Reserve: 1 << 60})
	var e *trivet.Error
	if err := from(t, s, serve(t, origin, nil)).Pull(t.Context(), ref); !errors.Is(err, trivet.ErrUnavailable) || !errors.As(err, &e) || !strings.Contains(e.Hint, "free space") {
		t.Error(err)
	}
	empty(t, s)
}

// Deleting ends the pull.
func TestDeleteWhilePulled(t *testing.T) {
	origin := open(t, Options{})
	ref := put(t, origin, noise(2*ChunkBytes))
	g := &gate{open: make(chan struct{}), asked: make(chan string, 100)}
	s := open(t, Options{})
	p := NewPuller(s, PullConfig{Locate: func(_ context.Context, ref trivet.BlobRef) (trivet.BlobRef, []string, error) {
		return ref, []string{serve(t, origin, g.wrap)}, nil
	}})
	defer p.Close()
	ended := make(chan error)
	go func() { ended <- p.Pull(t.Context(), ref) }()
	<-g.asked
	if err := p.Delete(t.Context(), digestOf(t, ref)); !errors.Is(err, trivet.ErrNotFound) {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, trivet.ErrNotFound) {
		t.Error(err)
	}
	empty(t, s)
}

// A folder that was taken away is made again.
func TestPullIntoNoFolder(t *testing.T) {
	origin := open(t, Options{})
	ref := put(t, origin, noise(10))
	s := open(t, Options{})
	p := from(t, s, serve(t, origin, nil))
	must(t, p.Pull(t.Context(), ref))
	must(t, os.RemoveAll(s.dir))
	must(t, p.Pull(t.Context(), ref))
	must(t, s.Verify(t.Context(), digestOf(t, ref)))
}
