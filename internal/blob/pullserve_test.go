package blob

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
)

// gate serves a blob chunk by chunk, as the test permits.
type gate struct {
	open   chan struct{} // receives one value for each chunk
	ranges chan string   // the requested ranges
}

func (g *gate) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, tableSuffix) {
			next.ServeHTTP(w, r)
			return
		}
		g.ranges <- r.Header.Get("Range")
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

// A missing blob is served while it is pulled, and a requested range is pulled before other chunks.
func TestMissingBlobIsServedWhilePulled(t *testing.T) {
	origin := open(t, Options{})
	content := noise(6*ChunkBytes + 5)
	ref := put(t, origin, content)
	g := &gate{open: make(chan struct{}), ranges: make(chan string, 100)}
	s := open(t, Options{})
	p := NewPuller(s, PullConfig{StallTimeout: time.Minute, Locate: at(serve(t, origin, g.wrap))})
	defer p.Close()
	url := p.startServer(t, ref)
	go func() { g.open <- struct{}{} }()
	resp, err := http.Get(url)
	must(t, err)
	defer resp.Body.Close()
	first := make([]byte, ChunkBytes-8<<10) // net/http buffers the rest
	_, err = io.ReadFull(resp.Body, first)
	if err != nil || !bytes.HasPrefix(content, first) || resp.ContentLength != ref.Bytes {
		t.Fatalf("the first chunk, of %d bytes in all: %v", resp.ContentLength, err)
	}
	if s.Has(digestOf(t, ref)) {
		t.Fatal("the blob is complete already")
	}
	status, table, err := get(t, url+tableSuffix, "")
	if status != http.StatusOK || DigestOf(table).String() != ref.Chunks || err != nil {
		t.Errorf("the table: %d, %v", status, err)
	}
	ranged := make(chan struct{})
	go func() {
		defer close(ranged)
		status, body, err := get(t, url, fmt.Sprintf("bytes=%d-%d", 4*ChunkBytes+7, 4*ChunkBytes+9))
		want := content[4*ChunkBytes+7 : 4*ChunkBytes+10]
		if status != http.StatusPartialContent || err != nil || !bytes.Equal(body, want) {
			t.Errorf("the range: %d, %v", status, err)
		}
	}()
	<-g.ranges
	p.mu.Lock()
	l := p.pulls[digestOf(t, ref)]
	p.mu.Unlock()
	for waits := false; !waits; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		waits = slices.Contains(l.requested, 4)
		l.mu.Unlock()
	}
	for from := ""; from == ""; { // the chunk in progress, then the requested range
		select {
		case g.open <- struct{}{}:
		case from = <-g.ranges:
			if from != fmt.Sprintf("bytes=%d-", 4*ChunkBytes) {
				t.Fatalf("requested %q", from)
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
	must(t, s.Verify(t.Context(), digestOf(t, ref), nil))
	if n := pulledBytes(t, p); n != float64(len(content)) {
		t.Errorf("%v bytes were pulled, of %d", n, len(content))
	}
}

// A request for a blob that no head has is refused. A pull that fails later ends the response early, without wrong
// data.
func TestMissingBlobFails(t *testing.T) {
	origin := open(t, Options{})
	content := noise(3*ChunkBytes + 3)
	ref := put(t, origin, content)
	for name, c := range map[string]struct {
		head   func(http.Handler) http.Handler
		status int
	}{
		"not found":   {notFound, http.StatusNotFound},
		"unavailable": {respond(http.StatusServiceUnavailable), http.StatusServiceUnavailable},
		"damaged":     {always(corrupt(content, ChunkBytes+1)), 0},
		"aborted":     {once(afterBytes(ChunkBytes+9, abort)), 0},
	} {
		s := open(t, Options{})
		status, body, err := get(t, newTestPuller(t, s, serve(t, origin, c.head)).startServer(t, ref), "")
		partial := err != nil && bytes.HasPrefix(content, body) && len(body) <= ChunkBytes
		if c.status != 0 && status != c.status || c.status == 0 && !partial {
			t.Errorf("%s: %d, %d bytes, %v", name, status, len(body), err)
		}
		if s.Has(digestOf(t, ref)) {
			t.Errorf("%s: the store has the blob", name)
		}
	}
	s := open(t, Options{})
	url := newTestPuller(t, s, serve(t, origin, nil)).startServer(t, ref)
	unknown := strings.TrimSuffix(url, ref.Digest) + Digest{1}.String()
	if status, _, err := get(t, unknown, ""); status != http.StatusNotFound || err != nil {
		t.Errorf("an unknown blob: %d, %v", status, err)
	}
	if status, _, err := get(t, url+"x", ""); status != http.StatusBadRequest || err != nil {
		t.Errorf("not a digest: %d, %v", status, err)
	}
}

// A queued background pull starts at once when a reader requests the blob; an urgent pull is not queued.
func TestReadersGoFirst(t *testing.T) {
	origin := open(t, Options{})
	hang := serve(t, origin, stalling)
	good := serve(t, origin, nil)
	requested, urgent := put(t, origin, noise(5)), put(t, origin, noise(6))
	located := make(chan string, 100)
	locate := func(_ context.Context, ref trivet.BlobRef) (trivet.BlobRef, []string, error) {
		located <- ref.Digest
		if ref == requested || ref == urgent {
			return ref, []string{good}, nil
		}
		return ref, []string{hang}, nil
	}
	p := NewPuller(open(t, Options{}), PullConfig{StallTimeout: time.Hour, Locate: locate})
	defer p.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range maxBackground {
		ref := refOf(noise(100 + i))
		go p.Pull(ctx, ref)
		<-located
	}
	pulled := make(chan error)
	go func() { pulled <- p.Pull(ctx, requested) }()
	status, body, err := get(t, p.startServer(t, requested), "")
	if status != http.StatusOK || err != nil || len(body) != 5 {
		t.Errorf("%d, %v", status, err)
	}
	must(t, <-pulled)
	must(t, p.PullUrgent(ctx, urgent))
}
