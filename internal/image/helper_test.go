package image

import (
	"archive/tar"
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/trivet-project/trivet/internal/agent/action/block"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// noise is content that does not repeat, the same for the same size.
func noise(size int) []byte {
	b := make([]byte, size)
	rand.NewChaCha8([32]byte{byte(size)}).Read(b)
	return b
}

// disk is a raw image with runs of zeros and of data, at their usual places and across the borders of pieces and
// grains.
func disk() []byte {
	b := make([]byte, 23<<20+5120)
	for _, r := range [][2]int{{0, 3000}, {3<<20 - 1, 3<<20 + 1}, {4 << 20, 5 << 20}, {15 << 20, 17<<20 + 77},
		{23<<20 + 100, 23<<20 + 200}} {
		copy(b[r[0]:r[1]], noise(r[1]-r[0]))
	}
	return b
}

// pack compresses by the usual program, so that tests read what users create.
func pack(t testing.TB, compression string, content []byte, flags ...string) []byte {
	t.Helper()
	if compression == None {
		return content
	}
	cmd := exec.Command(compression, append([]string{"-c"}, flags...)...)
	cmd.Stdin = bytes.NewReader(content)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s (apt-get install zstd gzip xz-utils): %v: %s", compression, err, &stderr)
	}
	return out
}

func unpack(compression string, packed []byte) ([]byte, error) {
	r, err := Decompress(bytes.NewReader(packed), compression)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

func archive(t testing.TB, names ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range names {
		kind := byte(tar.TypeReg)
		if strings.HasSuffix(name, "/") {
			kind = tar.TypeDir
		}
		must(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Typeflag: kind}))
	}
	must(t, w.Close())
	return b.Bytes()
}

// dockerArchive returns a docker archive as Google's crane writes it.
func dockerArchive(t testing.TB) []byte {
	t.Helper()
	img, err := random.Image(5000, 2)
	must(t, err)
	tag, err := name.NewTag("a:1")
	must(t, err)
	var b bytes.Buffer
	must(t, tarball.Write(tag, img, &b))
	return b.Bytes()
}

// layoutOf returns a tar of an OCI layout that begins with a blob of some size.
func layoutOf(t testing.TB, size int64) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	must(t, w.WriteHeader(&tar.Header{Name: "blobs/sha256/" + strings.Repeat("0a", 32), Mode: 0o644, Size: size}))
	_, err := w.Write(make([]byte, size))
	must(t, err)
	must(t, w.WriteHeader(&tar.Header{Name: "oci-layout", Mode: 0o644}))
	must(t, w.Close())
	return b.Bytes()
}

// used is a file of some size that is full of other data.
func used(t testing.TB, size int) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "disk")
	must(t, os.WriteFile(path, bytes.Repeat([]byte{0xa5}, size), 0o600))
	return path
}

// loop creates a block device of a file. It requires root.
func loop(t testing.TB, path string) (node string) {
	t.Helper()
	out, err := exec.Command("losetup", "--find", "--show", path).CombinedOutput()
	if err != nil {
		t.Fatalf("losetup (requires root, and apt-get install mount): %v: %s", err, out)
	}
	node = strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", node).CombinedOutput(); err != nil {
			t.Errorf("losetup --detach: %v: %s", err, out)
		}
	})
	return node
}

func open(t testing.TB, path string) *block.Device {
	t.Helper()
	d, err := block.Open(path)
	must(t, err)
	t.Cleanup(func() { must(t, d.Close()) })
	return d
}

// qcow2Of converts a disk by the usual program.
func qcow2Of(t testing.TB, disk []byte, flags ...string) []byte {
	t.Helper()
	raw := filepath.Join(t.TempDir(), "raw")
	must(t, os.WriteFile(raw, disk, 0o600))
	program(t, "qemu-img", append(append([]string{"convert", "-f", "raw", "-O", "qcow2"}, flags...), raw, raw+".qcow2")...)
	b, err := os.ReadFile(raw + ".qcow2")
	must(t, err)
	return b
}

// tarOf returns an archive of a disk.raw, and of another file if that has a name, by the usual program.
func tarOf(t testing.TB, disk []byte, other string, flags ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, DiskRaw), disk, 0o600))
	args := append(append([]string{"-C", dir}, flags...), "-cf", filepath.Join(dir, "tar"), DiskRaw)
	if other != "" {
		must(t, os.WriteFile(filepath.Join(dir, other), []byte("text"), 0o600))
		args = append(args, other)
	}
	program(t, "tar", args...)
	b, err := os.ReadFile(filepath.Join(dir, "tar"))
	must(t, err)
	return b
}

func program(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v (apt-get install qemu-utils tar): %v: %s", name, args, err, out)
	}
}
