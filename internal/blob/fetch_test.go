package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
)

// quick is a fetcher with short pauses.
var quick = &Fetcher{StallTimeout: 10 * time.Second, Pause: time.Millisecond}

// all fetches a whole blob.
func (f *Fetcher) all(t testing.TB, ref trivet.BlobRef, urls ...string) ([]byte, error) {
	t.Helper()
	r, err := f.Fetch(t.Context(), urls, ref)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(r)
	must(t, r.Close())
	return b, err
}

func TestFetch(t *testing.T) {
	s := open(t, Options{})
	url := serve(t, s, nil)
	for _, size := range []int{0, 1, ChunkBytes, ChunkBytes + 1, 7*ChunkBytes + 3} {
		content := noise(size)
		ref := put(t, s, content)
		for _, r := range []trivet.BlobRef{ref, {Digest: ref.Digest, Bytes: ref.Bytes}} {
			if got, err := quick.all(t, r, url); err != nil || !bytes.Equal(got, content) {
				t.Errorf("%d bytes: %d, %v", size, len(got), err)
			}
		}
	}
}

// Each faulty head is followed by a good one, which the reader requests from the last valid chunk on, without an error.
func TestFetchFailsOver(t *testing.T) {
	const at = 2*ChunkBytes + 1000 // where a head fails: in the third chunk
	s := open(t, Options{})
	content := noise(4*ChunkBytes + 3)
	ref := put(t, s, content)
	for name, c := range map[string]struct {
		head func(http.Handler) http.Handler
		from string // the range that is requested from the good head
	}{
		"aborts":            {afterBytes(at, abort), "bytes=8388608-"},
		"stalls":            {afterBytes(at, stall), "bytes=8388608-"},
		"damaged":           {always(corrupt(content, at)), "bytes=8388608-"},
		"other size":        {always(content[:at]), ""},
		"longer":            {always(append(bytes.Clone(content), 0)), ""},
		"not found":         {notFound, ""},
		"unavailable":       {respond(http.StatusServiceUnavailable), ""},
		"stalls at once":    {stalling, ""},
		"wrong range":       {func(next http.Handler) http.Handler { return dropRange(next, 1) }, ""},
		"huge table":        {hugeTable, ""},
		"other table":       {otherTable(s), ""},
		"redirects forever": {func(http.Handler) http.Handler { return http.HandlerFunc(loop) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var requested atomic.Value
			good := serve(t, s, func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if !strings.HasSuffix(r.URL.Path, tableSuffix) {
						requested.Store(r.Header.Get("Range"))
					}
					next.ServeHTTP(w, r)
				})
			})
			bad := serve(t, s, c.head)
			got, err := (&Fetcher{StallTimeout: time.Second}).all(t, ref, bad, good)
			if err != nil || !bytes.Equal(got, content) {
				t.Fatalf("%d bytes, %v", len(got), err)
			}
			if from := requested.Load(); from != c.from {
				t.Errorf("requested %q from the good head, want %q", from, c.from)
			}
		})
	}
}

// Permanent errors end a fetch, and no wrong data is returned.
func TestFetchGivesUp(t *testing.T) {
	s := open(t, Options{})
	content := noise(2*ChunkBytes + 3)
	ref := put(t, s, content)
	whole := trivet.BlobRef{Digest: ref.Digest, Bytes: ref.Bytes}
	damaged := always(corrupt(content, 2*ChunkBytes+1))
	for name, c := range map[string]struct {
		head func(http.Handler) http.Handler
		ref  trivet.BlobRef
		err  error
		good []byte // may be returned
	}{
		"not found":    {notFound, ref, trivet.ErrNotFound, nil},
		"forbidden":    {respond(http.StatusForbidden), ref, trivet.ErrForbidden, nil},
		"wrong chunk":  {damaged, ref, trivet.ErrInvalid, content[:2*ChunkBytes]},
		"wrong digest": {damaged, whole, trivet.ErrInvalid, corrupt(content, 2*ChunkBytes+1)},
		"huge table":   {hugeTable, ref, trivet.ErrInvalid, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := quick.all(t, c.ref, serve(t, s, c.head))
			if !errors.Is(err, c.err) || !bytes.Equal(got, c.good) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
	}
	for name, bad := range map[string]trivet.BlobRef{
		"no digest":  {},
		"bad chunks": {Digest: ref.Digest, Chunks: "sha256:", Bytes: 1},
		"too large":  {Digest: ref.Digest, Bytes: maxFetch + 1},
		"negative":   {Digest: ref.Digest, Bytes: -1},
	} {
		_, err := quick.Fetch(t.Context(), []string{"http://127.0.0.1:1"}, bad)
		if !errors.Is(err, trivet.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := quick.Fetch(t.Context(), nil, ref); !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("no head: %v", err)
	}
}

// A server without support for ranges sends the beginning again, which is skipped.
func TestFetchWithoutRanges(t *testing.T) {
	s := open(t, Options{})
	content := noise(3*ChunkBytes + 3)
	ref := put(t, s, content)
	var n atomic.Int32
	url := serve(t, s, func(next http.Handler) http.Handler {
		aborts := afterBytes(2*ChunkBytes+9, abort)(next)
		return dropRange(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if n.Add(1) == 2 { // the first is the table
				aborts.ServeHTTP(w, r)
				return
			}
			next.ServeHTTP(w, r)
		}), 0)
	})
	if got, err := quick.all(t, ref, url); err != nil || !bytes.Equal(got, content) || n.Load() != 3 {
		t.Errorf("%d bytes by %d requests, %v", len(got), n.Load(), err)
	}
}

// A fetch resumes when the only head restarts at the same address.
func TestFetchResumesAfterRestart(t *testing.T) {
	s := open(t, Options{})
	content := noise(20*ChunkBytes + 3) // more than the buffers of reader and sockets hold
	ref := put(t, s, content)
	l, err := net.Listen("tcp", "127.70.0.1:0") // no other test takes its port while the head is down
	must(t, err)
	first := &http.Server{Handler: s.Handler()}
	go first.Serve(l)
	r, err := quick.Fetch(t.Context(), []string{"http://" + l.Addr().String()}, ref)
	must(t, err)
	defer r.Close()
	head := make([]byte, ChunkBytes+5)
	_, err = io.ReadFull(r, head)
	must(t, err)
	must(t, first.Close())

	l, err = net.Listen("tcp", l.Addr().String())
	must(t, err)
	second := &http.Server{Handler: s.Handler()}
	go second.Serve(l)
	defer second.Close()
	rest, err := io.ReadAll(r)
	if err != nil || !bytes.Equal(append(head, rest...), content) {
		t.Errorf("%d bytes, %v", len(head)+len(rest), err)
	}
}

func TestFetchEndsWithItsContext(t *testing.T) {
	ref := refOf([]byte("x"))
	stop := errors.New("action cancelled")
	for name, url := range map[string]string{
		"hangs":       serve(t, open(t, Options{}), stalling),
		"unreachable": "http://127.0.0.1:1",
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		r, err := quick.Fetch(ctx, []string{url}, ref)
		must(t, err)
		time.AfterFunc(50*time.Millisecond, func() { cancel(stop) })
		if _, err := io.ReadAll(r); !errors.Is(err, stop) {
			t.Errorf("%s: %v", name, err)
		}
		must(t, r.Close())
	}
}

func TestFetchClosedEarly(t *testing.T) {
	s := open(t, Options{})
	ref := put(t, s, noise(9*ChunkBytes))
	r, err := quick.Fetch(t.Context(), []string{serve(t, s, nil)}, ref)
	must(t, err)
	_, err = r.Read(make([]byte, 10))
	must(t, err)
	must(t, r.Close())
	if n, err := io.Copy(io.Discard, r); err == nil {
		t.Errorf("read %d bytes after close, to the end", n)
	}
}

// afterBytes serves the first n bytes of the content, and then calls a handler. Tables are served complete.
func afterBytes(n int64, then http.HandlerFunc) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, tableSuffix) {
				next.ServeHTTP(w, r)
				return
			}
			next.ServeHTTP(&cutter{ResponseWriter: w, left: n, then: func() { then(w, r) }}, r)
		})
	}
}

type cutter struct {
	http.ResponseWriter
	left int64
	then func()
}

func (c *cutter) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p[:min(int64(len(p)), c.left)])
	if c.left -= int64(n); c.left == 0 {
		_ = http.NewResponseController(c.ResponseWriter).Flush()
		c.then()
		return n, io.ErrClosedPipe
	}
	return n, err
}

// always serves one content for every blob, with the right tables.
func always(content []byte) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, tableSuffix) {
				next.ServeHTTP(w, r)
				return
			}
			http.ServeContent(w, r, "x.bin", time.Time{}, bytes.NewReader(content))
		})
	}
}

func corrupt(content []byte, at int) []byte {
	out := bytes.Clone(content)
	out[at] ^= 1
	return out
}

func respond(status int) func(http.Handler) http.Handler {
	return func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	}
}

func notFound(http.Handler) http.Handler { return http.NotFoundHandler() }

func stalling(http.Handler) http.Handler { return http.HandlerFunc(stall) }

func abort(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// stall blocks until the client closes the connection.
func stall(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// dropRange removes the requested range, or replaces it by another one if shift is not 0.
func dropRange(next http.Handler, shift int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("Range")
		if shift != 0 {
			r.Header.Set("Range", fmt.Sprintf("bytes=%d-", shift))
		}
		next.ServeHTTP(w, r)
	})
}

func hugeTable(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, tableSuffix) {
			next.ServeHTTP(w, r)
			return
		}
		endless := make([]byte, 1<<20)
		for r.Context().Err() == nil {
			if _, err := w.Write(endless); err != nil {
				return
			}
		}
	})
}

// otherTable serves the chunk table of another content.
func otherTable(s *Store) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasSuffix(r.URL.Path, tableSuffix) {
				next.ServeHTTP(w, r)
				return
			}
			d, err := ParseDigest(strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/blob/"), tableSuffix))
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			table, err := s.table(d)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			table[0] ^= 1
			_, _ = w.Write(table)
		})
	}
}

func loop(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, http.StatusFound) }
