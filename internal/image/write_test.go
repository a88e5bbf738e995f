package image

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"testing"
	"testing/iotest"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
)

const room = 32 << 20 // bytes of the disks here

func TestWrite(t *testing.T) {
	content := disk()
	for name, path := range map[string]string{"file": used(t, room), "loop": loop(t, used(t, room))} {
		d := open(t, path)
		var seen []int64
		got, err := Write(t.Context(), d, iotest.HalfReader(bytes.NewReader(content)), Options{
			RawBytes: int64(len(content)), Progress: func(n int64) { seen = append(seen, n) },
		})
		must(t, err)
		if got.Bytes != int64(len(content)) || got.Zeros != 16<<20 {
			t.Errorf("%s: %+v", name, got)
		}
		if !slices.IsSorted(seen) || len(seen) < 5 || seen[len(seen)-1] != got.Bytes {
			t.Errorf("%s: progress %v", name, seen)
		}
		after, err := io.ReadAll(io.NewSectionReader(d, 0, room))
		must(t, err)
		if !bytes.Equal(after[:len(content)], content) {
			t.Errorf("%s: other content", name)
		}
		if rest := after[len(content):]; !bytes.Equal(rest, bytes.Repeat([]byte{0xa5}, len(rest))) {
			t.Errorf("%s: written beyond the image", name)
		}
	}
}

// memory is a target whose failures are set by the test.
type memory struct {
	b       []byte
	zero    error
	write   error // after some bytes
	after   int64
	sync    error
	syncs   int
	written int
}

func (m *memory) Size() int64 { return int64(len(m.b)) }

func (m *memory) Sync() error {
	m.syncs++
	return m.sync
}

func (m *memory) Zero(off, n int64) error {
	if m.zero == nil {
		clear(m.b[off : off+n])
	}
	return m.zero
}

func (m *memory) WriteAt(p []byte, off int64) (int, error) {
	if m.write != nil && off+int64(len(p)) > m.after {
		return 0, m.write
	}
	m.written += len(p)
	return copy(m.b[off:], p), nil
}

func TestWriteWithoutZeroCommand(t *testing.T) {
	content := disk()
	for _, errno := range []error{unix.EOPNOTSUPP, unix.EINVAL} {
		m := &memory{b: bytes.Repeat([]byte{1}, room), zero: errno}
		got, err := Write(t.Context(), m, bytes.NewReader(content), Options{})
		if err != nil || got.Zeros != 0 || !bytes.Equal(m.b[:len(content)], content) {
			t.Errorf("%v: %+v, %v", errno, got, err)
		}
	}
}

func TestWriteRefuses(t *testing.T) {
	broken, bad := errors.New("cable pulled"), errors.New("the disk is failing")
	content := noise(10 << 20)
	src := func() io.Reader { return bytes.NewReader(content) }
	for name, c := range map[string]struct {
		src     io.Reader
		dst     memory
		raw     int64
		want    error
		written bool // something may be
	}{
		"known to be too large": {iotest.ErrReader(broken), memory{b: make([]byte, 5<<20)}, 10 << 20, unix.ENOSPC,
			false},
		"too large": {src(), memory{b: make([]byte, 9<<20)}, 0, unix.ENOSPC, true},
		"zeros beyond the end": {bytes.NewReader(make([]byte, 10<<20)), memory{b: make([]byte, 9<<20)}, 0, unix.ENOSPC,
			true},
		"shorter than stated": {src(), memory{b: make([]byte, room)}, 11 << 20, trivet.ErrInvalid, true},
		"longer than stated":  {src(), memory{b: make([]byte, room)}, 9 << 20, trivet.ErrInvalid, true},
		"empty":               {bytes.NewReader(nil), memory{b: make([]byte, room)}, 0, trivet.ErrInvalid, false},
		"compressed": {bytes.NewReader(pack(t, Zstd, content)), memory{b: make([]byte, room)}, 0,
			trivet.ErrInvalid, false},
		"qcow2": {bytes.NewReader([]byte("QFI\xfb etc")), memory{b: make([]byte, room)}, 0, trivet.ErrInvalid,
			false},
		"broken off": {io.MultiReader(src(), iotest.ErrReader(broken)), memory{b: make([]byte, room)}, 0, broken,
			true},
		"disk fails":    {src(), memory{b: make([]byte, room), write: bad, after: 5 << 20}, 0, bad, true},
		"zeroing fails": {bytes.NewReader(disk()), memory{b: make([]byte, room), zero: bad}, 0, bad, true},
		"sync fails":    {src(), memory{b: make([]byte, room), sync: bad}, 0, bad, true},
	} {
		if _, err := Write(t.Context(), &c.dst, c.src, Options{RawBytes: c.raw}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if !c.written && c.dst.written > 0 {
			t.Errorf("%s: %d bytes were written", name, c.dst.written)
		}
	}
}

// endless never ends by itself, and is not read after writing has ended.
type endless struct{ read func() }

func (e endless) Read(p []byte) (int, error) {
	if e.read != nil {
		e.read()
	}
	p[0] = 1
	return len(p), nil
}

func TestWriteEnds(t *testing.T) {
	stop := errors.New("action cancelled")
	ctx, cancel := context.WithCancelCause(t.Context())
	n := 0
	src := endless{func() {
		if n++; n == 100 {
			cancel(stop)
		}
	}}
	if _, err := Write(ctx, &memory{b: make([]byte, 1<<30)}, iotest.OneByteReader(src),
		Options{}); !errors.Is(err, stop) || n != 100 {
		t.Errorf("after %d reads: %v", n, err)
	}
	if _, err := Write(t.Context(), &memory{b: make([]byte, 9<<20)}, endless{},
		Options{}); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("an endless image: %v", err)
	}
}

func TestWriteFlushesPeriodically(t *testing.T) {
	m := &memory{b: make([]byte, 3*flushEvery)}
	_, err := Write(t.Context(), m, io.LimitReader(endless{}, 3*flushEvery), Options{})
	if err != nil || m.syncs < 2 {
		t.Errorf("%d syncs, %v", m.syncs, err)
	}
}

// The data of a failed attempt does not appear in the next one.
func TestWriteAgain(t *testing.T) {
	content := disk()
	path := used(t, room)
	d := open(t, path)
	_, err := Write(t.Context(), d, io.MultiReader(bytes.NewReader(noise(9<<20)), iotest.ErrReader(io.ErrNoProgress)),
		Options{})
	if !errors.Is(err, io.ErrNoProgress) {
		t.Fatal(err)
	}
	_, err = Write(t.Context(), d, bytes.NewReader(content), Options{})
	must(t, err)
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got[:len(content)], content) {
		t.Errorf("other content: %v", err)
	}
}
