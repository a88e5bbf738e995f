package qcow2

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/trivet-project/trivet"
)

// qemu runs a program of QEMU.
func qemu(t testing.TB, program string, args ...string) {
	t.Helper()
	for try := 1; ; try++ {
		out, err := exec.Command(program, args...).CombinedOutput()
		if err == nil {
			return
		}
		// For the keys of LUKS, qemu-img measures how much processor time a thread gets, and fails where that is little.
		if try == 20 || !bytes.Contains(out, []byte("Unable to get accurate CPU usage")) {
			t.Fatalf("%s %v (apt-get install qemu-utils): %v: %s", program, args, err, out)
		}
	}
}

// rawDisk writes a disk with text, zeros and data that does not compress, which begins and ends inside clusters.
func rawDisk(t testing.TB, size int) (path string) {
	t.Helper()
	b := make([]byte, size)
	random := rand.NewChaCha8([32]byte{1})
	for at := 0; at+200_000 < size; at += 777_216 {
		random.Read(b[at+100_000 : at+170_000])
		copy(b[at:], strings.Repeat("what compresses well; ", 3000))
	}
	random.Read(b[size-700:])
	path = filepath.Join(t.TempDir(), "disk.raw")
	must(t, os.WriteFile(path, b, 0o600))
	return path
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func load(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return b
}

func decode(file []byte) ([]byte, error) {
	img, err := Open(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(img.Reader())
}

// qemu-img writes files in each way that images are distributed, and reads them again, as the judge.
func TestReadsWhatQEMUWrites(t *testing.T) {
	for _, size := range []int{5<<20 + 512, 64 << 10} {
		disk := rawDisk(t, size)
		for _, flags := range []string{
			"", "-o compat=0.10", "-o cluster_size=512", "-o cluster_size=2M", "-o lazy_refcounts=on",
			"-c", "-c -o compat=0.10", "-c -o cluster_size=512", "-c -o cluster_size=2M",
			"-c -o compression_type=zstd", "-c -o compression_type=zstd,cluster_size=2M",
			"-c -o compression_type=zstd,cluster_size=4k", "-o preallocation=metadata", "-o preallocation=falloc",
			"-S 0", "-o refcount_bits=1",
		} {
			path := filepath.Join(t.TempDir(), "disk.qcow2")
			args := append([]string{"convert", "-f", "raw", "-O", "qcow2"}, strings.Fields(flags)...)
			qemu(t, "qemu-img", append(args, disk, path)...)
			compare(t, fmt.Sprintf("%d bytes, %s", size, flags), path)
		}
	}
}

// compare holds what this package reads against what qemu-img reads.
func compare(t *testing.T, name, path string) {
	t.Helper()
	raw := filepath.Join(t.TempDir(), "want.raw")
	qemu(t, "qemu-img", "convert", "-f", "qcow2", "-O", "raw", path, raw)
	want := load(t, raw)
	got, err := decode(load(t, path))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: %d bytes, %v; want %d", name, len(got), err, len(want))
	}
}

// A disk that a virtual machine has used: written out of order, discarded, zeroed, with snapshots, grown.
func TestReadsUsedDisk(t *testing.T) {
	for _, options := range []string{"compat=1.1", "compat=0.10", "cluster_size=512", "cluster_size=1M"} {
		path := filepath.Join(t.TempDir(), "disk.qcow2")
		qemu(t, "qemu-img", "create", "-q", "-f", "qcow2", "-o", options, path, "40M")
		write := func(commands ...string) {
			var args []string
			for _, c := range commands {
				args = append(args, "-c", c)
			}
			qemu(t, "qemu-io", append(append([]string{"-f", "qcow2"}, args...), path)...)
		}
		write("write -P 1 39M 900k", "write -P 2 3000k 64k", "write -P 3 4M 3M", "write -P 9 512 512")
		qemu(t, "qemu-img", "snapshot", "-c", "before", path)
		write("write -P 4 5M 700k", "write -z 6M 1M", "discard 39M 500k", "write -P 5 20M 1k")
		compare(t, options, path)
		qemu(t, "qemu-img", "snapshot", "-d", "before", path)
		qemu(t, "qemu-img", "resize", "-q", path, "60M")
		write("write -P 6 59M 1M")
		compare(t, options+", grown", path)
	}
}

// Reads of any size return the same bytes.
func TestReadsInPieces(t *testing.T) {
	disk := rawDisk(t, 3<<20)
	path := filepath.Join(t.TempDir(), "disk.qcow2")
	qemu(t, "qemu-img", "convert", "-f", "raw", "-O", "qcow2", "-c", disk, path)
	file := load(t, path)
	img, err := Open(bytes.NewReader(file), int64(len(file)))
	must(t, err)
	if img.Size() != 3<<20 {
		t.Error(img.Size())
	}
	must(t, iotest.TestReader(img.Reader(), load(t, disk)))
}

func TestRefuses(t *testing.T) {
	disk := rawDisk(t, 2<<20)
	create := func(args ...string) []byte {
		path := filepath.Join(t.TempDir(), "disk.qcow2")
		qemu(t, "qemu-img", append(append([]string{"create", "-q", "-f", "qcow2"}, args...), path, "2M")...)
		return load(t, path)
	}
	packed := filepath.Join(t.TempDir(), "packed.qcow2")
	qemu(t, "qemu-img", "convert", "-f", "raw", "-O", "qcow2", "-c", disk, packed)
	patch := func(at int, b ...byte) []byte { return slices.Replace(load(t, packed), at, at+len(b), b...) }
	for name, c := range map[string]struct {
		file []byte
		says string
	}{
		"backing file": {create("-F", "raw", "-b", disk), "backing file"},
		"encrypted": {create("--object", "secret,id=k,data=secret", "-o",
			"encrypt.format=luks,encrypt.key-secret=k,encrypt.iter-time=10"), "encrypted"},
		"other data file":  {create("-o", "data_file="+filepath.Join(t.TempDir(), "d")), "in another file"},
		"subclusters":      {create("-o", "extended_l2=on"), "subclusters"},
		"corrupt":          {patch(79, 2), "qemu-img check -r all"},
		"unknown feature":  {patch(79, 0x40), "features that are not known"},
		"unknown method":   {patch(104, 7), "a method that is not known"},
		"version 1":        {patch(4, 0, 0, 0, 1), "version 2 or 3"},
		"small clusters":   {patch(20, 0, 0, 0, 8), "clusters"},
		"large clusters":   {patch(20, 0, 0, 0, 63), "clusters"},
		"no disk":          {patch(24, 0, 0, 0, 0, 0, 0, 0, 0), "0 bytes"},
		"half a sector":    {patch(24, 0, 0, 0, 0, 0, 0, 1, 0), "256 bytes"},
		"an exabyte":       {patch(24, 0x10), "at most"},
		"no first table":   {patch(36, 0, 0, 0, 0), "first table"},
		"table far away":   {patch(40, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0), "first table"},
		"table at -1":      {patch(40, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), "first table"},
		"header only":      {load(t, packed)[:104], "first table"},
		"magic only":       {[]byte(Magic), "version 2 or 3"},
		"cut off":          {load(t, packed)[:len(load(t, packed))/2], "cut off"},
		"deflate as zstd":  {patch(104, 1), "compressed cluster"},
		"damaged clusters": {patch(5*64<<10+3000, make([]byte, 30000)...), "compressed cluster"},
	} {
		if _, err := decode(c.file); !errors.Is(err, trivet.ErrInvalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An error of the source is not one of the image.
func TestKeepsTheSourcesError(t *testing.T) {
	disk := rawDisk(t, 1<<20)
	path := filepath.Join(t.TempDir(), "disk.qcow2")
	qemu(t, "qemu-img", "convert", "-f", "raw", "-O", "qcow2", disk, path)
	file := load(t, path)
	broken := errors.New("bad sector")
	for reads := range 6 {
		img, err := Open(&failing{bytes.NewReader(file), reads, broken}, int64(len(file)))
		if err == nil {
			_, err = io.ReadAll(img.Reader())
		}
		if !errors.Is(err, broken) || errors.Is(err, trivet.ErrInvalid) {
			t.Errorf("after %d reads: %v", reads, err)
		}
	}
}

type failing struct {
	io.ReaderAt
	left int
	err  error
}

func (f *failing) ReadAt(b []byte, at int64) (int, error) {
	if f.left--; f.left < 0 {
		return 0, f.err
	}
	return f.ReaderAt.ReadAt(b, at)
}
