package action

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/agent/action/block"
)

var allErase = map[string]any{"disk": "all", "mode": "erase"}
var all = map[string]any{"disk": "all"}

// fill writes data that does not repeat over a whole disk.
func (b *bench) fill() {
	b.t.Helper()
	d := b.open()
	defer d.Close()
	raw := make([]byte, d.Size())
	_, _ = rand.NewChaCha8([32]byte{}).Read(raw)
	_, err := d.WriteAt(raw, 0)
	must(b.t, err)
	must(b.t, d.Sync())
}

// content is all that is on the disk.
func (b *bench) content() []byte {
	b.t.Helper()
	d := b.open()
	defer d.Close()
	raw, err := io.ReadAll(io.NewSectionReader(d, 0, d.Size()))
	must(b.t, err)
	return raw
}

// by makes disks have these methods only.
func (b *bench) by(methods ...eraseMethod) {
	b.env.eraseMethods = func(*block.Device) []eraseMethod { return methods }
}

var refused = eraseMethod{"NVMe sanitize", func(context.Context, *eraseJob) (bool, error) {
	return false, errors.New("status 0x2001")
}}

// A disk is erased by what it supports: a loop device and a file discard. Nothing is left when that is verified, and a
// repetition of both changes nothing.
func TestErase(t *testing.T) {
	each(t, 64<<20, func(t *testing.T, b *bench) {
		b.fill()
		b.do("partition", threeSmallParts)
		if err := b.try(t.Context(), "verify", b.on(nil)); err == nil {
			t.Error("a disk with a table is verified")
		}
		for range 2 {
			b.do("wipe", map[string]any{"mode": "erase"})
			if !strings.HasPrefix(b.note, "discard: ") {
				t.Errorf("note %q\n%s", b.note, b.log.String())
			}
		}
		for range 2 {
			b.do("verify", nil)
		}
		if !isZero(b.content()) {
			t.Error("something is left")
		}
	})
}

var threeSmallParts = map[string]any{"partitions": []any{map[string]any{"size": "16MiB"}, map[string]any{"size": "rest"}}}

// A method that a disk refuses is followed by the next one, also a discard that the disk ignores.
func TestEraseFallsBack(t *testing.T) {
	each(t, 64<<20, func(t *testing.T, b *bench) {
		b.fill()
		b.by(refused, eraseMethod{"discard", ignoresDiscard}, eraseMethod{overwriteName, overwrite})
		b.do("wipe", map[string]any{"mode": "erase"})
		log := b.log.String()
		for _, want := range []string{"NVMe sanitize is not possible: status 0x2001",
			"discard is not possible: the disk has data at ", "erased by overwrite in "} {
			if !strings.Contains(log, want) {
				t.Errorf("the log lacks %q:\n%s", want, log)
			}
		}
		if !strings.HasPrefix(b.note, "overwrite: ") || b.seen != 64<<20 {
			t.Errorf("note %q, progress %d", b.note, b.seen)
		}
		b.do("verify", nil)
		if !isZero(b.content()) {
			t.Error("something is left")
		}
	})
}

// ignoresDiscard is discardAll of a disk that keeps its data.
func ignoresDiscard(_ context.Context, j *eraseJob) (bool, error) {
	return false, eachSample(j.Device, zeroSample)
}

// All disks are erased at the same time, and one that fails does not keep the others from it.
func TestDisksAreErasedAtTheSameTime(t *testing.T) {
	b := twoDisks(t)
	b.disk = "/dev/vda"
	arrived, both := make(chan string), make(chan struct{})
	broken := true
	b.by(eraseMethod{"slow", func(_ context.Context, j *eraseJob) (bool, error) {
		arrived <- j.Path()
		<-both
		if broken && j.Path() == b.env.Host.(Files).Paths["/dev/vdb"] {
			return false, errors.New("input/output error")
		}
		return false, nil
	}})
	ended := make(chan error)
	run := func() { ended <- b.try(t.Context(), "wipe", allErase) }
	go run()
	<-arrived
	<-arrived // neither has ended
	close(both)
	err := <-ended
	var f *Failure
	if !errors.As(err, &f) || f.Fault != trivet.FaultMachine || f.Final || !strings.Contains(err.Error(), "slow: input") {
		t.Errorf("%v", err)
	}
	broken = false
	go run() // only the one that is not erased
	if path := <-arrived; path != b.env.Host.(Files).Paths["/dev/vdb"] {
		t.Errorf("%s is erased again", path)
	}
	must(t, <-ended)
	must(t, b.try(t.Context(), "verify", all))
}

// An overwrite that lost its agent goes on where the last mark is, and not where a mark of another run is.
func TestOverwriteGoesOn(t *testing.T) {
	b := onFile(t, 4<<20)
	b.by(eraseMethod{overwriteName, overwrite})
	b.fill()
	d := b.open()
	must(t, mark{method: overwriteName, offset: 2 << 20}.write(d, "0000-uid"))
	must(t, d.Close())
	b.do("wipe", map[string]any{"mode": "erase"})
	if !strings.Contains(b.log.String(), "goes on with the overwrite at 2 MiB") {
		t.Errorf("%s", b.log.String())
	}
	if raw := b.content(); isZero(raw[1<<20:2<<20]) || !isZero(raw[2<<20:len(raw)-markBytes]) {
		t.Error("it began elsewhere")
	}
	b.run.UID = "1111-uid"
	b.do("wipe", map[string]any{"mode": "erase"})
	if raw := b.content(); !isZero(raw[:len(raw)-markBytes]) {
		t.Error("another run's mark was used")
	}
	b.do("verify", nil)
	if !isZero(b.content()) {
		t.Error("a mark is left")
	}
}

// A long overwrite is marked as it proceeds, behind what is on stable storage.
func TestOverwriteIsMarked(t *testing.T) {
	b := onFile(t, (markEvery+1)*zeroStep)
	d := b.open()
	defer d.Close()
	ctx, cancel := context.WithCancel(t.Context())
	j := &eraseJob{Device: d, run: "uid", log: io.Discard, progress: func(done, _ int64) {
		if done >= markEvery*zeroStep {
			cancel()
		}
	}}
	if _, err := overwrite(ctx, j); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if m := readMark(d, "uid"); m != (mark{method: overwriteName, offset: (markEvery - 1) * zeroStep}) {
		t.Errorf("%+v", m)
	}
	if m := readMark(d, "other"); m != (mark{}) {
		t.Errorf("of another run: %+v", m)
	}
}

// What verify must find, each by itself.
func TestVerifyFinds(t *testing.T) {
	const size = 64 << 20
	for name, c := range map[string]struct {
		off  int64
		data string
		want string
	}{
		"a boot sector":        {510, "\x55\xaa", "within a MiB of 0"},
		"a RAID's superblock":  {size - 64<<10, "\xfc\x4e\x2b\xa9", fmt.Sprint("within a MiB of ", size-1<<20)},
		"another run's mark":   {size - markBytes, "trivet: this disk", fmt.Sprint("within a MiB of ", size-1<<20)},
		"data":                 {2 << 20, strings.Repeat("data", 15<<20), "it has data at "},
		"a file system of XFS": {0, "XFSB", "within a MiB of 0"},
	} {
		b := onFile(t, size)
		d := b.open()
		_, err := d.WriteAt([]byte(c.data), c.off)
		must(t, err)
		must(t, d.Close())
		b.fail("verify", b.on(nil), trivet.FaultMachine, false, c.want)
		if t.Failed() {
			t.Fatal(name)
		}
	}
}

// What a crypto erase leaves is noise: it is no data, and a repetition knows that.
func TestVerifyOfNoise(t *testing.T) {
	b := onFile(t, 16<<20)
	b.by(eraseMethod{"NVMe sanitize", func(context.Context, *eraseJob) (bool, error) { return true, nil }})
	b.fill()
	b.do("wipe", map[string]any{"mode": "erase"})
	for range 2 {
		b.do("verify", nil)
	}
	b.run.UID = "1111-uid"
	b.fail("verify", b.on(nil), trivet.FaultMachine, false, "it has data")
}

// An agent that must stop does, and the next one has the disk.
func TestEraseIsCancelled(t *testing.T) {
	b := onFile(t, 16<<20)
	b.by(eraseMethod{"slow", func(ctx context.Context, _ *eraseJob) (bool, error) {
		<-ctx.Done()
		return false, ctx.Err()
	}}, eraseMethod{overwriteName, func(context.Context, *eraseJob) (bool, error) {
		t.Error("the next method begins")
		return false, nil
	}})
	b.killed("wipe", b.on(map[string]any{"mode": "erase"}))
	b.by(eraseMethod{overwriteName, overwrite})
	b.do("wipe", map[string]any{"mode": "erase"})
}

func TestEraseOfNoDisk(t *testing.T) {
	b := newBench(t, Files{}, "")
	must(t, b.try(t.Context(), "wipe", allErase))
	must(t, b.try(t.Context(), "verify", all))
}

// The methods of a disk by its kind, in the order to try. A file is a simulated disk.
func TestMethodsByTheKindOfADisk(t *testing.T) {
	for name, want := range map[string]string{
		"nvme0n1": "NVMe sanitize, NVMe format, discard, overwrite", "sda": "ATA secure erase, discard, overwrite",
		"mmcblk0": "secure discard, discard, overwrite", "vda": "discard, overwrite", "": "discard, overwrite",
	} {
		var names []string
		for _, m := range methodsOf(name != "", name) {
			names = append(names, m.name)
		}
		if got := strings.Join(names, ", "); got != want {
			t.Errorf("%s: %s; want %s", name, got, want)
		}
	}
	for _, m := range methodsOf(false, "sda") {
		if m.name == "ATA secure erase" {
			t.Error("a simulated disk is erased as a real one")
		}
	}
}
