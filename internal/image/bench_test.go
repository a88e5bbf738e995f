package image

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/trivet-project/trivet/internal/agent/action/block"
)

// BenchmarkWrite writes a zstd image to a disk, alternately by Write and by 'zstd -dc | dd bs=4M conv=fsync', and
// reports the best rate of each in MiB of the raw image a second. The image is an ext4 file system with this computer's
// /usr/lib.
func BenchmarkWrite(b *testing.B) {
	packed, size := usrLib(b)
	target := filepath.Join(filepath.Dir(packed), "target")
	b.Run("file", func(b *testing.B) { race(b, packed, target, size) })
	b.Run("loop", func(b *testing.B) { race(b, packed, loop(b, target), size) })
}

// usrLib creates the image.
func usrLib(b *testing.B) (packed string, size int64) {
	dir := b.TempDir()
	raw := filepath.Join(dir, "raw")
	shell(b, `set -e; from=/usr/lib/x86_64-linux-gnu; [ -d $from ] || from=/usr/lib
		mkfs.ext4 -q -d $from `+raw+` $(( $(du -sm $from | cut -f1) * 3 / 2 + 200 ))M
		truncate --reference=`+raw+` `+dir+`/target; zstd -q -T0 `+raw)
	fi, err := os.Stat(raw)
	must(b, err)
	must(b, os.Remove(raw))
	return raw + ".zst", fi.Size()
}

func race(b *testing.B, packed, target string, size int64) {
	write, dd := time.Hour, time.Hour
	took := func(f func()) time.Duration {
		shell(b, "sync")
		began := time.Now()
		f()
		return time.Since(began)
	}
	for range b.N {
		for range 3 {
			dd = min(dd, took(func() {
				shell(b, "zstd -dcq "+packed+" | dd bs=4M conv=fsync,notrunc status=none of="+target)
			}))
			write = min(write, took(func() { writeOnce(b, packed, target, size) }))
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(size>>20)/write.Seconds(), "trivet-MiB/s")
	b.ReportMetric(float64(size>>20)/dd.Seconds(), "dd-MiB/s")
	b.ReportMetric(dd.Seconds()/write.Seconds(), "trivet/dd")
}

func writeOnce(b *testing.B, packed, target string, size int64) {
	f, err := os.Open(packed)
	must(b, err)
	defer f.Close()
	r, err := Decompress(f, Zstd)
	must(b, err)
	defer r.Close()
	d, err := block.Open(target)
	must(b, err)
	defer d.Close()
	_, err = Write(b.Context(), d, r, Options{RawBytes: size})
	must(b, err)
	n, err := io.Copy(io.Discard, r)
	if err != nil || n > 0 {
		b.Fatal(n, err)
	}
}

func shell(b *testing.B, script string) {
	b.Helper()
	if out, err := exec.Command("sh", "-c", script).CombinedOutput(); err != nil {
		b.Fatalf("%s (apt-get install zstd e2fsprogs): %v: %s", script, err, out)
	}
}
