package action

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/actionspec"
	"github.com/trivet-project/trivet/internal/agent/action/block"
	"github.com/trivet-project/trivet/internal/agent/container/sandbox"
	"github.com/trivet-project/trivet/internal/image"
)

func (e *Env) image(ctx context.Context, at *Attempt, s *actionspec.Image) error {
	img, err := imageOf(at.Run, s.Image, "raw")
	if err != nil {
		return err
	}
	path, err := e.disk(at, s.Disk)
	if err != nil {
		return err
	}
	grown, err := e.writeImage(ctx, at, img, path, s)
	if err != nil || grown == 0 {
		return err
	}
	return e.growFS(ctx, at, path, grown)
}

// writeImage streams the image to the disk. It returns the number of the partition that grew, or 0.
func (e *Env) writeImage(ctx context.Context, at *Attempt, img trivet.ImageRef, path string,
	s *actionspec.Image) (grown int, err error) {
	d, err := block.OpenPart(path, s.Partition)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if img.RawBytes > d.Size() {
		return 0, finalf(trivet.FaultConfiguration, "image %s has %d bytes and does not fit on %s, which has %d",
			img.Name, img.RawBytes, d.Path(), d.Size())
	}
	began := time.Now()
	src, err := e.open(ctx, at, img)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	done, err := image.Write(ctx, d, src, image.Options{RawBytes: img.RawBytes})
	if err != nil {
		return 0, src.fault(ctx, err)
	}
	at.Note(rate(done.Bytes, time.Since(began)))
	if s.Partition != 0 {
		return 0, nil
	}
	if s.Grow {
		if grown, err = grow(d); err != nil {
			return 0, err
		}
	}
	return grown, reread(ctx, d)
}

// rate is "1400 MiB at 210 MiB/s".
func rate(bytes int64, took time.Duration) string {
	return fmt.Sprintf("%d MiB at %.0f MiB/s", bytes>>20, float64(bytes)/(1<<20)/max(took.Seconds(), 0.001))
}

// grow extends the partition table to the disk's end, and the last partition with it.
func grow(d *block.Device) (partition int, err error) {
	t, err := d.Table()
	if err != nil {
		return 0, finalf(trivet.FaultConfiguration, "grow: the image on %s: %w", d.Path(), err)
	}
	changed, last := t.Grow(true)
	if !changed {
		return 0, nil
	}
	if err := errors.Join(t.Write(d), d.Sync()); err != nil {
		return 0, fmt.Errorf("grow the table of %s: %w", d.Path(), err)
	}
	if last == nil {
		return 0, nil
	}
	return last.Number, nil
}

// growFS extends the file system on a partition to the partition's size. File systems that only grow while mounted are
// extended by cloud-init at the first boot.
func (e *Env) growFS(ctx context.Context, at *Attempt, path string, partition int) (err error) {
	d, err := block.OpenPart(path, partition)
	if err != nil {
		return err
	}
	fs := block.Probe(d)
	if err := d.Close(); err != nil || fs.Type != "ext4" {
		return err
	}
	node, release, err := block.Attach(path, partition)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	err = e.run(ctx, at, trivet.FaultImage, sandbox.Spec{Args: []string{"e2fsck", "-f", "-y", node}})
	var exit *sandbox.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.Code > 2 || exit.Signal != 0) { // 1 and 2: errors were corrected
		return err
	}
	return e.run(ctx, at, trivet.FaultMachine, sandbox.Spec{Args: []string{"resize2fs", node}})
}
