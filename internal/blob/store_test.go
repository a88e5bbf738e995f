package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/trivet-project/trivet"
)

func TestPut(t *testing.T) {
	s := open(t, Options{})
	all := map[Digest]trivet.BlobRef{}
	sizes := []int{0, 1, 1<<20 - 1, 1 << 20, ChunkBytes - 1, ChunkBytes, ChunkBytes + 1, 3*ChunkBytes + 12345}
	for _, size := range sizes {
		content := noise(size)
		want := refOf(content)
		ref, err := s.Put(t.Context(), bytes.NewReader(content), trivet.BlobRef{})
		must(t, err)
		if ref != want {
			t.Errorf("%d bytes: %+v, not %+v", size, ref, want)
		}
		d := digestOf(t, ref)
		all[d] = ref
		if got, err := s.Stat(d); err != nil || got != want {
			t.Errorf("stat: %+v, %v", got, err)
		}
		f, n, err := s.Get(d)
		must(t, err)
		got, err := io.ReadAll(f)
		must(t, errors.Join(err, f.Close()))
		if !bytes.Equal(got, content) || n != int64(size) {
			t.Errorf("%d bytes: other content", size)
		}
		must(t, s.Verify(t.Context(), d, nil))
		if again := put(t, s, content); again != want {
			t.Errorf("%d bytes again: %+v", size, again)
		}
	}
	listed, err := s.List()
	must(t, err)
	byDigest := func(a, b trivet.BlobRef) int { return strings.Compare(a.Digest, b.Digest) }
	if len(listed) != len(all) || !slices.IsSortedFunc(listed, byDigest) {
		t.Errorf("list: %v", listed)
	}
	for _, ref := range listed {
		if all[digestOf(t, ref)] != ref {
			t.Errorf("list: %+v", ref)
		}
	}
	for d := range all {
		must(t, s.Delete(d))
		if err := s.Delete(d); !errors.Is(err, trivet.ErrNotFound) {
			t.Errorf("deleted twice: %v", err)
		}
		if _, err := s.Stat(d); !errors.Is(err, trivet.ErrNotFound) {
			t.Errorf("deleted: %v", err)
		}
	}
	empty(t, s)
}

func TestPutRefuses(t *testing.T) {
	content := noise(2*ChunkBytes + 5)
	good, other := refOf(content), refOf([]byte("other"))
	broken := errors.New("cable pulled")
	for name, c := range map[string]struct {
		r    io.Reader
		want trivet.BlobRef
		err  error
	}{
		"wrong digest": {bytes.NewReader(content), trivet.BlobRef{Digest: other.Digest}, trivet.ErrInvalid},
		"wrong table":  {bytes.NewReader(content), trivet.BlobRef{Chunks: other.Chunks}, trivet.ErrInvalid},
		"truncated":    {bytes.NewReader(content[:ChunkBytes]), trivet.BlobRef{Bytes: good.Bytes}, trivet.ErrInvalid},
		"too long":     {bytes.NewReader(content), trivet.BlobRef{Bytes: ChunkBytes}, trivet.ErrInvalid},
		"read error":   {io.MultiReader(bytes.NewReader(content), iotest.ErrReader(broken)), trivet.BlobRef{}, broken},
		"ends early": {io.MultiReader(bytes.NewReader(content), iotest.ErrReader(io.ErrUnexpectedEOF)),
			trivet.BlobRef{}, io.ErrUnexpectedEOF},
		"too large":          {bytes.NewReader(content), trivet.BlobRef{Digest: good.Digest}, trivet.ErrTooLarge},
		"not a digest":       {bytes.NewReader(content), trivet.BlobRef{Digest: "sha256:../passwd"}, trivet.ErrInvalid},
		"declared too large": {bytes.NewReader(content), trivet.BlobRef{Bytes: 2 << 40}, trivet.ErrTooLarge},
		"negative":           {bytes.NewReader(content), trivet.BlobRef{Bytes: -1}, trivet.ErrInvalid},
	} {
		s := open(t, Options{MaxBytes: 1 << 40})
		if name == "too large" {
			s.opts.MaxBytes = int64(len(content)) - 1
		}
		if _, err := s.Put(t.Context(), c.r, c.want); !errors.Is(err, c.err) {
			t.Errorf("%s: %v", name, err)
		}
		if all, err := s.List(); err != nil || len(all) > 0 {
			t.Errorf("%s: the store has %v, %v", name, all, err)
		}
		empty(t, s)
	}
}

// Put reads at most one byte more than the declared length.
func TestPutStopsReading(t *testing.T) {
	s := open(t, Options{})
	endless := readFunc(func(p []byte) (int, error) { return len(p), nil })
	if _, err := s.Put(t.Context(), endless, trivet.BlobRef{Bytes: 5}); !errors.Is(err, trivet.ErrInvalid) {
		t.Error(err)
	}
	empty(t, s)
}

// A blob exists with its table or not at all, whatever puts and deletes run concurrently.
func TestConcurrentPutAndDelete(t *testing.T) {
	s := open(t, Options{})
	content := noise(1000)
	ref := refOf(content)
	d := digestOf(t, ref)
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			for range 50 {
				if got, err := s.Put(t.Context(), bytes.NewReader(content), ref); err != nil || got != ref {
					t.Errorf("put: %+v, %v", got, err)
				}
			}
		})
		both.Go(func() {
			for range 50 {
				if err := s.Delete(d); err != nil && !errors.Is(err, trivet.ErrNotFound) {
					t.Errorf("delete: %v", err)
				}
			}
		})
	}
	both.Wait()
	if f, _, err := s.Get(d); err == nil {
		must(t, f.Close())
		must(t, s.Verify(t.Context(), d, nil))
	} else if _, err := s.table(d); !errors.Is(err, trivet.ErrNotFound) {
		t.Errorf("a table without content: %v", err)
	}
	empty(t, s)
}

func TestPutEndsWithItsContext(t *testing.T) {
	s := open(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	_, err := s.Put(ctx, io.MultiReader(bytes.NewReader(noise(3<<20)), readFunc(func(p []byte) (int, error) {
		cancel()
		return len(p), nil
	})), trivet.BlobRef{})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	empty(t, s)
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// Writes to a full file system are refused, and leave nothing.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	mount := exec.Command("mount", "-t", "tmpfs", "-o", "size=8m", "trivet-blob", dir)
	if out, err := mount.CombinedOutput(); err != nil {
		t.Fatalf("mount (requires root, and apt-get install mount): %v: %s", err, out)
	}
	t.Cleanup(func() { must(t, exec.Command("umount", dir).Run()) })
	s, err := Open(dir, Options{})
	must(t, err)
	defer s.Close()
	check := func(name string, err error) {
		var e *trivet.Error
		if !errors.Is(err, trivet.ErrUnavailable) || !errors.As(err, &e) || !strings.Contains(e.Hint, "free space") {
			t.Errorf("%s: %v", name, err)
		}
		empty(t, s)
	}
	big := noise(12 << 20)
	_, err = s.Put(t.Context(), bytes.NewReader(big), trivet.BlobRef{})
	check("unknown length", err)
	_, err = s.Put(t.Context(), iotest.ErrReader(errors.New("it was read")), trivet.BlobRef{Bytes: 12 << 20})
	check("known length", err)
	id, err := s.Begin()
	must(t, err)
	_, err = s.Append(t.Context(), id, 0, bytes.NewReader(big))
	check("upload", err)
	s.opts.Reserve = 6 << 20
	_, err = s.Put(t.Context(), bytes.NewReader(nil), trivet.BlobRef{Bytes: 3 << 20})
	check("reserve", err)
	put(t, s, noise(2<<20))
}

// What exceeds the quota is refused before it is stored, from operators and from other heads; there is space again when
// something is deleted.
func TestQuota(t *testing.T) {
	origin := open(t, Options{})
	ref := put(t, origin, noise(2*ChunkBytes))
	s := open(t, Options{Quota: 12 << 20})
	own := put(t, s, noise(6<<20))
	refused := func(what string, err error) {
		t.Helper()
		var e *trivet.Error
		if !errors.Is(err, trivet.ErrUnavailable) || !errors.As(err, &e) || !strings.Contains(err.Error(), "quota") ||
			!strings.Contains(e.Hint, "--blob-quota") {
			t.Errorf("%s: %v", what, err)
		}
		empty(t, s)
	}
	p := newTestPuller(t, s, serve(t, origin, nil))
	_, err := s.Put(t.Context(), iotest.ErrReader(errors.New("it was read")), trivet.BlobRef{Bytes: 7 << 20})
	refused("a known length", err)
	refused("a pull", p.Pull(t.Context(), ref))
	must(t, s.Delete(digestOf(t, own)))
	id, err := s.Begin()
	must(t, err)
	_, err = s.Append(t.Context(), id, 0, bytes.NewReader(noise(7<<20)))
	must(t, err)
	uploaded, err := s.Finish(t.Context(), id, trivet.BlobRef{Bytes: 7 << 20}) // it is there already
	must(t, err)
	must(t, s.Delete(digestOf(t, uploaded)))
	must(t, p.Pull(t.Context(), ref))
	if used, err := s.Usage(); err != nil || used < ref.Bytes || used > ref.Bytes+1<<20 {
		t.Errorf("%d bytes are used, %v", used, err)
	}
}

func TestOpenRemovesTemporaryFiles(t *testing.T) {
	s := open(t, Options{})
	ref := put(t, s, noise(100))
	dir := s.dir
	if _, err := Open(dir, Options{}); !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("opened twice: %v", err)
	}
	stale, orphan := filepath.Join(dir, newID()+putSuffix), s.path(Digest{1})+tableSuffix
	must(t, errors.Join(os.WriteFile(stale, nil, 0o600), os.WriteFile(orphan, nil, 0o600)))
	must(t, s.lock.Close())
	again, err := Open(dir, Options{})
	must(t, err)
	empty(t, again)
	if _, err := os.Stat(orphan); !os.IsNotExist(err) {
		t.Errorf("a table without content: %v", err)
	}
	if got, err := again.Stat(digestOf(t, ref)); err != nil || got != ref {
		t.Errorf("%+v, %v", got, err)
	}
	s.lock = again.lock
}

// A copy that is damaged is named, and no longer a blob of the store. Reading it is no use of it.
func TestVerify(t *testing.T) {
	var damaged, repaired int
	s := open(t, Options{Damaged: func(Digest, error) { damaged++ }, Repaired: func(Digest) { repaired++ }})
	content := noise(3*ChunkBytes + 7)
	d := digestOf(t, put(t, s, content))
	for i, c := range []struct {
		damage func()
		want   string
	}{
		{func() { flip(t, s.path(d), ChunkBytes+1) }, fmt.Sprintf("in the %d bytes at %d", ChunkBytes, ChunkBytes)},
		{func() { must(t, os.Truncate(s.path(d), ChunkBytes)) }, "its length is wrong"},
	} {
		used := time.Now().Add(-time.Hour)
		must(t, os.Chtimes(s.path(d), used, used))
		must(t, s.Verify(t.Context(), d, nil))
		if held, err := s.Held(); err != nil || len(held) != 1 || !held[0].Used.Equal(used) {
			t.Errorf("the time of the last use: %+v, not %s, %v", held, used, err)
		}
		c.damage()
		err := s.Verify(t.Context(), d, nil)
		if !errors.Is(err, trivet.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("verify: %v, want %q", err, c.want)
		}
		if s.Has(d) || damaged != i+1 || !slices.Equal(s.Damaged(), []Digest{d}) {
			t.Errorf("the store has it: %t; %d were reported", s.Has(d), damaged)
		}
		put(t, s, content)
		if repaired != i+1 || len(s.Damaged()) != 0 {
			t.Errorf("%d were reported as repaired, and %v are damaged", repaired, s.Damaged())
		}
	}
	if err := s.Verify(t.Context(), Digest{1}, nil); !errors.Is(err, trivet.ErrNotFound) {
		t.Error(err)
	}
}

// A chunk table that is damaged or lost is written again: the content is good.
func TestVerifyMendsTable(t *testing.T) {
	var repaired []Digest
	s := open(t, Options{Repaired: func(d Digest) { repaired = append(repaired, d) }})
	ref := put(t, s, noise(3*ChunkBytes+7))
	d := digestOf(t, ref)
	for _, damage := range []func(){
		func() { flip(t, s.path(d)+tableSuffix, 60) },
		func() { must(t, os.Remove(s.path(d)+tableSuffix)) },
	} {
		damage()
		must(t, s.Verify(t.Context(), d, nil))
		if got, err := s.Stat(d); err != nil || got != ref {
			t.Errorf("%+v, not %+v: %v", got, ref, err)
		}
	}
	if !slices.Equal(repaired, []Digest{d, d}) {
		t.Errorf("reported: %v", repaired)
	}
}

// A copy that another one has replaced meanwhile is not taken for damaged.
func TestVerifyOfReplacedFile(t *testing.T) {
	s := open(t, Options{})
	content := noise(ChunkBytes)
	d := digestOf(t, put(t, s, content))
	flip(t, s.path(d), 1)
	replaced := false
	err := s.Verify(t.Context(), d, func(context.Context, int) error {
		if !replaced {
			put(t, s, content)
		}
		replaced = true
		return nil
	})
	if !errors.Is(err, trivet.ErrInvalid) || !s.Has(d) {
		t.Errorf("%v; the store has it: %t", err, s.Has(d))
	}
	must(t, s.Verify(t.Context(), d, nil))
}

// A verification ends with its pace, and then decides nothing.
func TestVerifyStops(t *testing.T) {
	s := open(t, Options{})
	d := digestOf(t, put(t, s, noise(3*ChunkBytes)))
	flip(t, s.path(d), 1)
	stopped, read := errors.New("stopped"), 0
	err := s.Verify(t.Context(), d, func(_ context.Context, n int) error { read += n; return stopped })
	if !errors.Is(err, stopped) || read != pieceBytes || !s.Has(d) {
		t.Errorf("%v after %d bytes; the store has it: %t", err, read, s.Has(d))
	}
}
