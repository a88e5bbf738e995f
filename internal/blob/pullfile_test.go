package blob

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
)

// A pull resumes after kill -9 with the chunks that are valid, wherever in the blob they are.
func TestPullResumesAfterKill(t *testing.T) {
	origin := open(t, Options{})
	content := noise(8*ChunkBytes + 3)
	ref := put(t, origin, content)
	g := &gate{open: make(chan struct{}), ranges: make(chan string, 100)}
	dir, d := t.TempDir(), digestOf(t, ref)
	cmd := exec.Command(os.Args[0], "-test.run=^TestPullToBeKilled$")
	cmd.Env = append(os.Environ(), "BLOB_PULL_DIR="+dir, "BLOB_PULL_FROM="+serve(t, origin, g.wrap),
		"BLOB_PULL_REF="+fmt.Sprintf("%s %d %s", ref.Digest, ref.Bytes, ref.Chunks))
	out := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	must(t, cmd.Start())
	for range 5 {
		g.open <- struct{}{} // received once the chunk before was sent
	}
	waitForChunk(t, filepath.Join(dir, d.hex()+pullSuffix), content, 1)
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	s, err := Open(dir, Options{})
	must(t, err)
	defer s.Close()
	if s.Has(d) {
		t.Fatal("the store has the blob")
	}
	flip(t, s.path(d)+pullSuffix, 5) // the disk has damaged the first chunk
	p := newTestPuller(t, s, serve(t, origin, nil))
	must(t, p.Pull(t.Context(), ref))
	must(t, s.Verify(t.Context(), d, nil))
	n := int64(pulledBytes(t, p))
	if n >= ref.Bytes || n < ChunkBytes+3*ChunkBytes {
		t.Errorf("%d of %d bytes were pulled again; output of the killed process: %s", n, ref.Bytes, out)
	}
	empty(t, s)
}

// waitForChunk waits until a chunk is in the file of a pull.
func waitForChunk(t testing.TB, path string, content []byte, i int64) {
	t.Helper()
	want := content[i*ChunkBytes : (i+1)*ChunkBytes]
	got := make([]byte, len(want))
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		f, err := os.Open(path)
		if err == nil {
			_, err = f.ReadAt(got, i*ChunkBytes)
			err = errors.Join(err, f.Close())
		}
		if err == nil && bytes.Equal(got, want) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("chunk %d is not in %s: %v", i, path, err)
		}
	}
}

// TestPullToBeKilled is the process that TestPullResumesAfterKill kills.
func TestPullToBeKilled(t *testing.T) {
	dir := os.Getenv("BLOB_PULL_DIR")
	if dir == "" {
		return
	}
	var ref trivet.BlobRef
	_, err := fmt.Sscan(os.Getenv("BLOB_PULL_REF"), &ref.Digest, &ref.Bytes, &ref.Chunks)
	must(t, err)
	s, err := Open(dir, Options{})
	must(t, err)
	p := NewPuller(s, PullConfig{Locate: at(os.Getenv("BLOB_PULL_FROM"))})
	must(t, p.Pull(t.Context(), ref))
}

// Files of pulls that are complete or too old are removed.
func TestStalePullsAreRemoved(t *testing.T) {
	s := open(t, Options{UploadTimeout: time.Hour})
	complete, old, recent := digestOf(t, put(t, s, noise(3))), Digest{1}, Digest{2}
	for _, d := range []Digest{complete, old, recent} {
		must(t, os.WriteFile(s.path(d)+pullSuffix, []byte("x"), 0o600))
	}
	expired := time.Now().Add(-2 * time.Hour)
	must(t, os.Chtimes(s.path(old)+pullSuffix, expired, expired))
	must(t, s.sweep())
	for d, want := range map[Digest]bool{complete: false, old: false, recent: true} {
		if _, err := os.Stat(s.path(d) + pullSuffix); (err == nil) != want {
			t.Errorf("%s: %v", d, err)
		}
	}
	must(t, os.Remove(s.path(recent)+pullSuffix))
}

func TestPullWithoutSpace(t *testing.T) {
	origin := open(t, Options{})
	ref := put(t, origin, noise(2*ChunkBytes))
	s := open(t, Options{Reserve: 1 << 60})
	var e *trivet.Error
	err := newTestPuller(t, s, serve(t, origin, nil)).Pull(t.Context(), ref)
	if !errors.Is(err, trivet.ErrUnavailable) || !errors.As(err, &e) || !strings.Contains(e.Hint, "free space") {
		t.Error(err)
	}
	empty(t, s)
}

// Deleting a blob stops its pull.
func TestDeleteWhilePulled(t *testing.T) {
	origin := open(t, Options{})
	ref := put(t, origin, noise(2*ChunkBytes))
	g := &gate{open: make(chan struct{}), ranges: make(chan string, 100)}
	s := open(t, Options{})
	p := NewPuller(s, PullConfig{Locate: at(serve(t, origin, g.wrap))})
	defer p.Close()
	ended := make(chan error)
	go func() { ended <- p.Pull(t.Context(), ref) }()
	<-g.ranges
	if err := p.Delete(t.Context(), digestOf(t, ref)); !errors.Is(err, trivet.ErrNotFound) {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, trivet.ErrNotFound) {
		t.Error(err)
	}
	empty(t, s)
}

// A directory that was removed is recreated.
func TestPullRecreatesDirectory(t *testing.T) {
	origin := open(t, Options{})
	ref := put(t, origin, noise(10))
	s := open(t, Options{})
	p := newTestPuller(t, s, serve(t, origin, nil))
	must(t, p.Pull(t.Context(), ref))
	must(t, os.RemoveAll(s.dir))
	must(t, p.Pull(t.Context(), ref))
	must(t, s.Verify(t.Context(), digestOf(t, ref), nil))
}
