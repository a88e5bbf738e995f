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
