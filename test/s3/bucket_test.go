package s3_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/bucket"
)

const mib = 1 << 20

// content returns bytes that are the same each time.
func content(size int) []byte {
	b := make([]byte, size)
	rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

func isAny(string) bool { return true }

func lock(t testing.TB, b *bucket.Bucket) *bucket.Lock {
	t.Helper()
	l, err := b.Lock(t.Context(), isAny)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// put writes a file.
func put(ctx context.Context, l *bucket.Lock, name string, text []byte, replace bool) error {
	u := l.Create(ctx, name, int64(len(text)))
	defer u.Discard()
	if _, err := io.Copy(u, bytes.NewReader(text)); err != nil {
		return err
	}
	return u.Publish(ctx, replace)
}

func get(ctx context.Context, b *bucket.Bucket, name string, at, n int64) ([]byte, error) {
	o, err := b.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	if n < 0 {
		n = o.Size()
	}
	return io.ReadAll(o.Range(at, n))
}

// Files of every kind of size are written and read, whole and in parts, listed, and removed.
func TestFiles(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	b := s.open("site/one")
	l := lock(t, b)
	all := content(40*mib + 5)
	sizes := map[string]int64{}
	for name, size := range map[string]int{"empty": 0, "small": 3, "part": 16 * mib, "more": 16*mib + 1,
		"blobs/big": len(all)} {
		if err := put(t.Context(), l, name, all[:size], false); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := get(t.Context(), b, name, 0, -1)
		if err != nil || !bytes.Equal(got, all[:size]) {
			t.Errorf("%s: read %d bytes, %v", name, len(got), err)
		}
		if !strings.Contains(name, "/") {
			sizes[name] = int64(size)
		}
	}
	got, err := get(t.Context(), b, "blobs/big", 17*mib, 20*mib)
	if err != nil || !bytes.Equal(got, all[17*mib:37*mib]) {
		t.Errorf("a range: %d bytes, %v", len(got), err)
	}
	list, err := b.List(t.Context(), "")
	if err != nil || len(list) != len(sizes) || list["more"] != sizes["more"] {
		t.Errorf("listed %v, %v", list, err)
	}
	if list, err := b.List(t.Context(), "blobs"); err != nil || list["big"] != int64(len(all)) {
		t.Errorf("listed %v, %v", list, err)
	}
	if err := l.Remove(t.Context(), []string{"small", "blobs/big"}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Open(t.Context(), "small"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that was removed: %v", err)
	}
	if list, err := b.List(t.Context(), "blobs"); err != nil || len(list) > 0 {
		t.Errorf("left %v, %v", list, err)
	}
}

// What is not published is not there, whichever way it ends; a file is replaced only where that was wanted.
func TestNotPublished(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	b := s.open("site")
	l := lock(t, b)
	all := content(40 * mib)
	for _, size := range []int{5, len(all)} {
		u := l.Create(t.Context(), "x", int64(size))
		if _, err := u.Write(all[:size]); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Open(t.Context(), "x"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("it is there before: %v", err)
		}
		u.Discard()
		if _, err := b.Open(t.Context(), "x"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("it is there after: %v", err)
		}
	}
	s.expectNoUploads()
	for _, size := range []int{5, len(all)} {
		if err := put(t.Context(), l, "y", all[:size], true); err != nil {
			t.Fatal(err)
		}
		if err := put(t.Context(), l, "y", all[1:size], false); !errors.Is(err, trivet.ErrExists) {
			t.Errorf("replaced a file of %d bytes: %v", size, err)
		}
		if got, err := get(t.Context(), b, "y", 0, -1); err != nil || !bytes.Equal(got, all[:size]) {
			t.Errorf("read %d bytes, %v", len(got), err)
		}
	}
	s.expectNoUploads()
}

// expectNoUploads fails the test where parts of uploads are on the server.
func (s *server) expectNoUploads() {
	s.t.Helper()
	if parts := s.parts(); len(parts) > 0 {
		s.t.Errorf("parts are left: %q", parts)
	}
}

// parts returns the parts of incomplete uploads.
func (s *server) parts() (parts []string) {
	s.t.Helper()
	dir := filepath.Join(s.dir, ".sgwtmp", "multipart")
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && d.Type().IsRegular() {
			parts = append(parts, path)
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return parts
}

// awaitParts waits until so many parts are on the server.
func (s *server) awaitParts(n int) {
	s.t.Helper()
	if err := s.Await(func() bool { return len(s.parts()) == n }, time.Minute); err != nil {
		s.t.Fatalf("%d parts, want %d: %v", len(s.parts()), n, err)
	}
}

// A byte that is changed on the way to the server is refused by it, in a file of one part and of several.
func TestChangedOnTheWay(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	var changed atomic.Bool
	front := s.proxy(func(r *http.Request) {
		if r.Method != http.MethodPut || !strings.Contains(r.URL.Path, "/x") {
			return
		}
		text, err := io.ReadAll(r.Body)
		if err != nil || len(text) == 0 {
			return
		}
		text[len(text)/2] ^= 1
		changed.Store(true)
		r.Body = io.NopCloser(bytes.NewReader(text))
	}, nil)
	b := openAt(t, front, "site")
	l := lock(t, b)
	for _, size := range []int{5, 17 * mib} {
		changed.Store(false)
		err := put(t.Context(), l, "x", content(size), true)
		if err == nil || !changed.Load() {
			t.Errorf("%d bytes: changed %v, %v", size, changed.Load(), err)
		}
		if _, err := b.Open(t.Context(), "x"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("it is there: %v", err)
		}
	}
	s.expectNoUploads()
}

// Connections that end after a few MiB do not end a read: it goes on where it was.
func TestReadGoesOn(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	text := content(20 * mib)
	if err := put(t.Context(), lock(t, s.open("site")), "x", text, false); err != nil {
		t.Fatal(err)
	}
	var cut atomic.Int32
	front := s.proxy(nil, func(resp *http.Response) io.Reader {
		if resp.Request.Method == http.MethodGet && resp.ContentLength > 3*mib {
			cut.Add(1)
			return io.LimitReader(resp.Body, 3*mib)
		}
		return resp.Body
	})
	got, err := get(t.Context(), openAt(t, front, "site"), "x", 0, -1)
	if err != nil || !bytes.Equal(got, text) || cut.Load() < 3 {
		t.Errorf("read %d of %d bytes after %d lost connections: %v", len(got), len(text), cut.Load(), err)
	}
}

// A server that ends every connection makes a read fail, and one that is gone, with what to do.
func TestServerGoesAway(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	b := s.open("site")
	l := lock(t, b)
	text := content(40 * mib)
	if err := put(t.Context(), l, "x", text, false); err != nil {
		t.Fatal(err)
	}
	o, err := b.Open(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	r := o.Range(0, o.Size())
	if _, err := io.ReadFull(r, make([]byte, mib)); err != nil {
		t.Fatal(err)
	}
	u := l.Create(t.Context(), "y", int64(len(text)))
	defer u.Discard()
	if _, err := u.Write(text[:20*mib]); err != nil {
		t.Fatal(err)
	}
	s.awaitParts(1)
	s.Kill()
	_, readErr := io.Copy(io.Discard, r)
	_, writeErr := u.Write(text[20*mib:])
	if writeErr == nil {
		writeErr = u.Publish(t.Context(), false)
	}
	_, listErr := b.List(t.Context(), "")
	for _, err := range []error{readErr, writeErr, listErr} {
		if !errors.Is(err, trivet.ErrUnavailable) || !strings.Contains(hintOf(err), "check that it runs") {
			t.Errorf("the server is gone: %v", err)
		}
	}
	l.Close()
	s.start() // what was written is not there, and the next process removes it
	lock(t, b)
	s.expectNoUploads()
	if list, err := b.List(t.Context(), ""); err != nil || len(list) != 1 {
		t.Errorf("listed %v, %v", list, err)
	}
}

// An object that is replaced while it is read is not mixed with its successor.
func TestReplacedWhileRead(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	b := s.open("site")
	l := lock(t, b)
	text := content(2 * mib)
	if err := put(t.Context(), l, "x", text, false); err != nil {
		t.Fatal(err)
	}
	o, err := b.Open(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	r := o.Range(0, o.Size())
	if _, err := io.ReadFull(r, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	slices.Reverse(text)
	if err := put(t.Context(), l, "x", text, true); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, r); !errors.Is(err, trivet.ErrConflict) || hintOf(err) == "" {
		t.Errorf("read both: %v", err)
	}
}

// Only incomplete uploads of this prefix, and those that the caller knows, are removed.
func TestForeignUploads(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	none := func(string) bool { return false } // the lock of site would remove what is below it
	for prefix, name := range map[string]string{"site": "theirs", "site2": "ours", "site/blobs": "sub"} {
		l, err := s.open(prefix).Lock(t.Context(), none)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		u := l.Create(t.Context(), name, 40*mib)
		if _, err := u.Write(content(33 * mib)); err != nil { // it is never discarded
			t.Fatal(err)
		}
	}
	s.awaitParts(6)
	b := s.open("site")
	if err := os.RemoveAll(filepath.Join(s.dir, "site", ".locks")); err != nil {
		t.Fatal(err)
	}
	l, err := b.Lock(t.Context(), func(name string) bool { return name == "ours" })
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if n := len(s.parts()); n != 6 {
		t.Errorf("%d of 6 parts are left", n)
	}
}

func hintOf(err error) string {
	var detailed *trivet.Error
	if errors.As(err, &detailed) {
		return detailed.Hint
	}
	return ""
}
