package action

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/actionspec"
	"github.com/trivet-project/trivet/internal/agent/action/block"
	"github.com/trivet-project/trivet/internal/agent/action/gpt"
)

// Of a disk that was erased, these samples are read. Each is from a part of the disk of its own, at random.
const (
	samples     = 64
	sampleBytes = 64 << 10
)

// verify fails where disks hold anything: a partition table, a signature, data in a sample.
func (e *Env) verify(ctx context.Context, at *Attempt, s *actionspec.Verify) error {
	paths, err := e.pathsOf(at, s.Disk, s.IsAll())
	if err != nil {
		return err
	}
	for i, path := range paths {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if err := verifyDisk(at, path); err != nil {
			return failf(trivet.FaultMachine, "%s is not erased: %w", path, err)
		}
		at.Progress(int64(i+1), int64(len(paths)), "disks")
	}
	at.Note(fmt.Sprintf("%d disks hold nothing", len(paths)))
	return nil
}

// verifyDisk checks a disk, and then removes the mark of the run that erased it. That of a disk with noise stays: a
// repetition needs it.
func verifyDisk(at *Attempt, path string) error {
	d, err := block.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	m := readMark(d, at.Run.UID)
	if err := verifyEnds(d, m.done); err != nil {
		return err
	}
	if fs := block.Probe(d); fs.Type != "" {
		return fmt.Errorf("it has a file system, %s", fs.Type)
	}
	if _, err := d.Table(); !errors.Is(err, gpt.ErrNone) {
		return fmt.Errorf("it has a partition table (%v)", err)
	}
	err = eachSample(d, func(off int64, b []byte) error {
		if !m.noise && !isConstant(b) {
			return fmt.Errorf("it has data at %d", off)
		}
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(at.Log, "%s: both ends and %d samples hold nothing\n", path, samples)
	if !m.done || m.noise {
		return nil
	}
	return clearMark(d)
}

// verifyEnds checks the ends of a disk, where signatures are. marked: the last bytes are a mark.
func verifyEnds(d *block.Device, marked bool) error {
	n, tail := min(d.Size(), wipeEnds), int64(0)
	if marked {
		tail = markBytes
	}
	for _, off := range []int64{0, d.Size() - n} {
		b := make([]byte, min(n, d.Size()-tail-off))
		if _, err := d.ReadAt(b, off); err != nil {
			return err
		}
		if !isZero(b) {
			return fmt.Errorf("it has data within a MiB of %d", off)
		}
	}
	return nil
}

// eachSample reads samples of a disk, but not of its last bytes, where a mark is.
func eachSample(d *block.Device, check func(off int64, b []byte) error) error {
	size := d.Size() - markBytes
	n := min(int64(sampleBytes), size) / markBytes * markBytes
	b := make([]byte, n)
	for i := range int64(samples) {
		from, to := size/samples*i, size/samples*(i+1)
		off := min(from+rand.Int64N(max(1, to-from)), size-n) / markBytes * markBytes
		if _, err := d.ReadAt(b, off); err != nil {
			return err
		}
		if err := check(off, b); err != nil {
			return err
		}
	}
	return nil
}

func isZero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

// isConstant reports whether all bytes are the same: disks read as zeros or as ones once they are erased.
func isConstant(b []byte) bool { return len(b) == 0 || bytes.Equal(b[1:], b[:len(b)-1]) }
