package action

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet/internal/actionspec"
	"github.com/trivet-project/trivet/internal/agent/action/block"
)

// Sizes of a wipe in bytes. File systems, RAIDs, volume managers and partition tables have their signatures within
// wipeEnds of one end of their device.
const (
	wipeEnds = 1 << 20
	zeroStep = 64 << 20
	dropStep = 4 << 30
)

func (e *Env) wipe(ctx context.Context, at *Attempt, s *actionspec.Wipe) error {
	paths, err := e.pathsOf(at, s.Disk, s.IsAll())
	for _, path := range paths {
		if err == nil {
			err = e.stopAbove(ctx, at, path)
		}
	}
	if err == nil && s.Mode == actionspec.WipeErase {
		return e.erase(ctx, at, paths)
	}
	for _, path := range paths {
		if err == nil {
			err = wipeDisk(ctx, at, path, s.Mode)
		}
	}
	return err
}

// pathsOf returns the disk that an argument selects, or all disks that may be written.
func (e *Env) pathsOf(at *Attempt, disk actionspec.Disk, all bool) ([]string, error) {
	if all {
		return e.Host.Disks()
	}
	path, err := e.disk(at, disk)
	if err != nil {
		return nil, err
	}
	return []string{path}, nil
}

func wipeDisk(ctx context.Context, at *Attempt, path, mode string) error {
	d, err := block.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	parts, err := d.Parts()
	if err != nil {
		return err
	}
	fmt.Fprintf(at.Log, "wiping %s: %d MiB, %d partitions, %s\n", path, d.Size()>>20, len(parts), mode)
	switch mode {
	case actionspec.WipeDiscard:
		err = steps(ctx, at, d.Size(), dropStep, d.Discard)
		if errors.Is(err, unix.EOPNOTSUPP) {
			fmt.Fprintf(at.Log, "%s cannot discard; only its signatures are wiped\n", path)
			err = nil
		}
	case actionspec.WipeZero:
		err = steps(ctx, at, d.Size(), zeroStep, func(off, n int64) error { return zero(d, off, n) })
	}
	if err != nil {
		return fmt.Errorf("wipe %s: %w", path, err)
	}
	for _, p := range parts { // the partitions first: they are not found without the table
		if err := wipeRange(d, p.Offset, p.Size); err != nil {
			return fmt.Errorf("wipe partition %d of %s: %w", p.Number, path, err)
		}
	}
	if err := wipeRange(d, 0, d.Size()); err != nil {
		return fmt.Errorf("wipe %s: %w", path, err)
	}
	if err := d.Sync(); err != nil {
		return fmt.Errorf("wipe %s: %w", path, err)
	}
	return reread(ctx, d)
}

// reread makes the kernel read the partition table, unless the device does not support partitions.
func reread(ctx context.Context, d *block.Device) error {
	if err := d.Reread(ctx); err != nil && !errors.Is(err, unix.EINVAL) {
		return err
	}
	return nil
}

// steps performs a long operation in pieces, so that it can be cancelled and reports progress.
func steps(ctx context.Context, at *Attempt, size, step int64, do func(off, n int64) error) error {
	for off := int64(0); off < size; off += step {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if err := do(off, min(step, size-off)); err != nil {
			return err
		}
		at.Progress(min(off+step, size), size, "bytes")
	}
	return nil
}

// wipeRange zeroes both ends of a part of a disk.
func wipeRange(d *block.Device, off, size int64) error {
	n := min(size, wipeEnds)
	return errors.Join(zero(d, off, n), zero(d, off+size-n, n))
}

// zero makes a range read as zeros, by writing if the device has no command for it.
func zero(d *block.Device, off, n int64) error {
	if off%d.Sector() == 0 && n%d.Sector() == 0 && d.Zero(off, n) == nil {
		return nil
	}
	zeros := make([]byte, min(n, wipeEnds))
	for end := off + n; off < end; off += int64(len(zeros)) {
		if _, err := d.WriteAt(zeros[:min(int64(len(zeros)), end-off)], off); err != nil {
			return err
		}
	}
	return nil
}
