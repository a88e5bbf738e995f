package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
)

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
