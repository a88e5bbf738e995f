package action

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/agent/action/block"
)

// rewriteAll reads the disk, writes back what it has read twice alike, and reads it again. It ends at the first part
// where that fails: what is on the disk must stay.
func (t *diskTest) rewriteAll(ctx context.Context) error {
	b, again := block.Aligned(int(t.piece)), block.Aligned(int(t.piece))
	err := t.each(ctx, func(off, n int64) error {
		if err := t.read(off, b[:n]); err != nil {
			return err
		}
		if t.env.diskRead != nil {
			t.env.diskRead(off, b[:n])
		}
		return t.rewrite(off, b[:n], again[:n])
	})
	return t.faulty(ctx, err)
}

// faulty is an error of a part of the disk, as a failure that names the disk.
func (t *diskTest) faulty(ctx context.Context, err error) error {
	if err == nil || isFailure(err) || ctx.Err() != nil {
		return err
	}
	return finalf(trivet.FaultMachine, "%s: %w", t.Path(), err)
}

// rewrite writes to a disk what was read from it, and compares what it reads then. It writes nothing where a second
// reading differs: what is on the disk may be right.
func (t *diskTest) rewrite(off int64, b, again []byte) error {
	if err := t.read(off, again); err != nil {
		return err
	}
	if !bytes.Equal(b, again) {
		return fmt.Errorf("%d bytes at %d were read twice, and differ; nothing was written", len(b), off)
	}
	if err := t.writeBack(off, b); err != nil {
		return err
	}
	if err := t.read(off, again); err != nil {
		return err
	}
	if bytes.Equal(b, again) {
		return nil
	}
	err := fmt.Errorf("%d bytes at %d were read as others than they were written; they may be damaged", len(b), off)
	return errors.Join(err, t.writeBack(off, b))
}

// writeBack writes to a disk, and flushes its cache.
func (t *diskTest) writeBack(off int64, b []byte) error {
	if _, err := t.WriteAt(b, off); err != nil {
		return fmt.Errorf("at %d: %w", off, err)
	}
	if err := t.Sync(); err != nil {
		return fmt.Errorf("%d bytes at %d: %w", len(b), off, err)
	}
	return nil
}

// diskPatterns are what mode write writes, by the number of a word of the disk: random values that a compressing disk
// cannot shorten, and their inverse.
var diskPatterns = []func(n uint64) uint64{
	func(n uint64) uint64 { return randomWord(n, 0) },
	func(n uint64) uint64 { return ^randomWord(n, 0) },
}

// writeAll writes all parts with each pattern, and reads them afterwards, when caches hold others.
func (t *diskTest) writeAll(ctx context.Context) error {
	t.total *= 2 * int64(len(diskPatterns))
	want, got := block.Aligned(int(t.piece)), block.Aligned(int(t.piece))
	for _, pattern := range diskPatterns {
		err := t.each(ctx, func(off, n int64) error {
			if _, err := t.WriteAt(fillDisk(pattern, off, want[:n]), off); err != nil {
				return fmt.Errorf("at %d: %w", off, err)
			}
			return nil
		})
		if err == nil {
			err = t.Sync()
		}
		if err != nil {
			return t.faulty(ctx, err)
		}
		if t.env.diskWritten != nil {
			t.env.diskWritten(t.Device)
		}
		err = t.each(ctx, func(off, n int64) error {
			if err := t.read(off, got[:n]); err != nil {
				return err
			}
			return compareDisk(fillDisk(pattern, off, want[:n]), got[:n], off)
		})
		if err != nil {
			return t.faulty(ctx, err)
		}
	}
	return nil
}

// fillDisk fills a part of the disk. Every part begins and ends at a multiple of a word's bytes.
func fillDisk(pattern func(n uint64) uint64, off int64, b []byte) []byte {
	for i := 0; i+8 <= len(b); i += 8 {
		binary.NativeEndian.PutUint64(b[i:], pattern(uint64(off+int64(i))/8))
	}
	return b
}

func compareDisk(want, got []byte, off int64) error {
	for i := range want {
		if want[i] != got[i] {
			return fmt.Errorf("the byte at %d was written as %#02x and read as %#02x", off+int64(i), want[i], got[i])
		}
	}
	return nil
}
