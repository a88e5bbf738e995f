package action

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/actionspec"
	"github.com/trivet-project/trivet/internal/agent/action/block"
)

// testPiece is how much of a disk a full test reads at a time, in bytes.
const testPiece = 4 << 20

// test tests the memory, and then the disks at the same time, until the first one is found faulty. What is on the disks
// stays.
func (e *Env) test(ctx context.Context, at *Attempt, s *actionspec.Test) error {
	paths, err := e.pathsOf(at, s.Disk, s.IsAll())
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return finalf(trivet.FaultMachine, "%w that can be tested", actionspec.ErrNoDisk)
	}
	memory, err := e.testMemory(ctx, at)
	if err != nil {
		return err
	}
	log, parts := &lockedWriter{to: at.Log}, newTotal(at, len(paths))
	ctx, found := context.WithCancelCause(ctx)
	defer found(nil)
	err = eachDisk(ctx, paths, func(i int, path string) error {
		err := e.testDisk(ctx, path, s.Full, log, func(size int64) func(done, total int64) { return parts.of(i, size) })
		if err != nil && ctx.Err() == nil {
			fmt.Fprintln(log, err)
			found(err)
		}
		return err
	})
	at.Note(fmt.Sprintf("%d MiB of memory and %d disks", memory>>20, len(paths)))
	return err
}

// testDisk reads samples of a disk, or all of it, writes them back and reads them again.
func (e *Env) testDisk(ctx context.Context, path string, full bool, log io.Writer,
	progress func(size int64) func(done, total int64)) error {
	d, err := block.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	report, again := progress(d.Size()), make([]byte, sampleBytes)
	count, total := 0, int64(0)
	each := eachSample
	if full {
		each, again = eachPiece, make([]byte, testPiece)
	}
	err = each(d, func(off int64, b []byte) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if e.diskRead != nil {
			e.diskRead(off, b)
		}
		count, total = count+1, total+int64(len(b))
		report(off, d.Size())
		return rewrite(d, off, b, again[:len(b)])
	})
	if err != nil {
		return finalf(trivet.FaultMachine, "%s: %w", path, err)
	}
	fmt.Fprintf(log, "%s: %d MiB; %d KiB in %d pieces were read, written and read again\n", path, d.Size()>>20, total>>10,
		count)
	return nil
}

// eachPiece reads a disk from its beginning to its end.
func eachPiece(d *block.Device, check func(off int64, b []byte) error) error {
	b := make([]byte, testPiece)
	for off := int64(0); off < d.Size(); off += testPiece {
		piece := b[:min(testPiece, d.Size()-off)]
		if _, err := d.ReadAt(piece, off); err != nil {
			return fmt.Errorf("at %d: %w", off, err)
		}
		if err := check(off, piece); err != nil {
			return err
		}
	}
	return nil
}

// rewrite writes to a disk what was read from it, and compares what it reads then. It writes nothing where a second
// reading differs: what is on the disk may be right.
func rewrite(d *block.Device, off int64, b, again []byte) error {
	if err := readAgain(d, off, again); err != nil {
		return err
	}
	if !bytes.Equal(b, again) {
		return fmt.Errorf("%d bytes at %d were read twice, and differ; nothing was written", len(b), off)
	}
	if err := writeBack(d, off, b); err != nil {
		return err
	}
	if err := readAgain(d, off, again); err != nil {
		return err
	}
	if bytes.Equal(b, again) {
		return nil
	}
	err := fmt.Errorf("%d bytes at %d were read as others than they were written; they may be damaged", len(b), off)
	return errors.Join(err, writeBack(d, off, b))
}

// writeBack writes to a disk, and flushes its cache.
func writeBack(d *block.Device, off int64, b []byte) error {
	if _, err := d.WriteAt(b, off); err != nil {
		return fmt.Errorf("at %d: %w", off, err)
	}
	if err := d.Sync(); err != nil {
		return fmt.Errorf("%d bytes at %d: %w", len(b), off, err)
	}
	return nil
}

// readAgain reads from the disk, and not from the page cache.
func readAgain(d *block.Device, off int64, b []byte) error {
	f, base := d.File()
	if err := unix.Fadvise(int(f.Fd()), base+off, int64(len(b)), unix.FADV_DONTNEED); err != nil {
		return fmt.Errorf("drop the page cache: %w", err)
	}
	if _, err := d.ReadAt(b, off); err != nil {
		return fmt.Errorf("at %d: %w", off, err)
	}
	return nil
}
