package qcow2

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
)

// FuzzRead: whatever a file describes, it is the stated number of bytes, or an error of the image.
func FuzzRead(f *testing.F) {
	disk := rawDisk(f, 12<<10)
	for _, flags := range []string{
		"-o cluster_size=4k", "-c -o cluster_size=512", "-c -o cluster_size=512,compression_type=zstd",
		"-o cluster_size=512,compat=0.10",
	} {
		path := filepath.Join(f.TempDir(), "disk.qcow2")
		args := append([]string{"convert", "-f", "raw", "-O", "qcow2"}, strings.Fields(flags)...)
		qemu(f, "qemu-img", append(args, disk, path)...)
		f.Add(load(f, path))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		img, err := Open(bytes.NewReader(file), int64(len(file)))
		if err == nil {
			const limit = 1 << 20
			var n int64
			n, err = io.Copy(io.Discard, io.LimitReader(img.Reader(), limit))
			if want := min(limit, img.Size()); err == nil && n != want {
				t.Errorf("%d bytes, not %d", n, want)
			}
		}
		if err != nil && !errors.Is(err, trivet.ErrInvalid) {
			t.Errorf("not an ErrInvalid: %v", err)
		}
	})
}
