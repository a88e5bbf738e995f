package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/trivet-project/trivet/internal/agent/action/block"
	"github.com/trivet-project/trivet/internal/image"
)

const imageRounds = 3

// image puts a zstd raw image on a disk: by the code that the agent's image action runs, and by zstd and dd. The
// image is an ext4 file system with this computer's libraries; the disk is a loop device, and a file for whom there
// is none.
func (b *bench) image() error {
	packed := filepath.Join(b.dir, "image.zst")
	raw, err := b.makeImage(packed)
	if err != nil {
		return err
	}
	target := filepath.Join(b.dir, "disk")
	if err := errors.Join(os.WriteFile(target, nil, 0o600), os.Truncate(target, raw)); err != nil {
		return err
	}
	out, err := b.output(nil, "losetup", "--find", "--show", target)
	if err != nil {
		return err
	}
	loop := strings.TrimSpace(out)
	defer b.output(nil, "losetup", "--detach", loop)
	for _, disk := range []struct{ what, path string }{{"to a file", target}, {"to a loop device", loop}} {
		rate := func(write func(packed, disk string, raw int64) error) func() (float64, error) {
			return func() (float64, error) {
				if _, err := b.output(nil, "sync"); err != nil {
					return 0, err
				}
				began := time.Now()
				err := write(packed, disk.path, raw)
				return float64(raw) / 1e6 / time.Since(began).Seconds(), err
			}
		}
		r, err := alternate(imageRounds, rate(b.writeImage), rate(b.zstdDD))
		if err != nil {
			return err
		}
		r.what, r.unit, r.by, r.bound = disk.what, "MB/s of the raw image", "zstd and dd", atLeastPeer(0.9)
		b.report.add(r)
	}
	b.report.command(`zstd -dcq image.zst | dd bs=4M conv=fsync,notrunc of=DISK`)
	b.report.note("The raw image has %d MB. Both sides end with a sync. Trivet skips what is zero, where the disk "+
		"says that it is zero already after a discard.", raw/1e6)
	return nil
}

func (b *bench) makeImage(packed string) (raw int64, err error) {
	path := strings.TrimSuffix(packed, ".zst")
	script := fmt.Sprintf(`set -e; from=/usr/lib/x86_64-linux-gnu; [ -d $from ] || from=/usr/lib
		mkfs.ext4 -q -d $from %s $(( $(du -sm $from | cut -f1) * 3 / 2 + 200 ))M
		zstd -q -T0 -o %s %[1]s`, path, packed)
	if _, err := b.output(nil, "sh", "-c", script); err != nil {
		return 0, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return info.Size(), os.Remove(path)
}

func (b *bench) zstdDD(packed, disk string, _ int64) error {
	_, err := b.output(nil, "sh", "-c", "zstd -dcq "+packed+" | dd bs=4M conv=fsync,notrunc status=none of="+disk)
	return err
}

func (b *bench) writeImage(packed, disk string, raw int64) error {
	f, err := os.Open(packed)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := image.Decompress(f, image.Zstd)
	if err != nil {
		return err
	}
	defer r.Close()
	d, err := block.Open(disk)
	if err != nil {
		return err
	}
	defer d.Close()
	if _, err := image.Write(b.ctx, d, r, image.Options{RawBytes: raw}); err != nil {
		return err
	}
	n, err := io.Copy(io.Discard, r)
	if err == nil && n > 0 {
		err = fmt.Errorf("%d bytes were left", n)
	}
	return err
}
