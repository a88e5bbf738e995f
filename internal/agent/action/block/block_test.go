package block

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet/internal/agent/action/gpt"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// file creates a sparse file of a size.
func file(t *testing.T, size int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk")
	f, err := os.Create(path)
	must(t, err)
	must(t, f.Truncate(size))
	must(t, f.Close())
	return path
}

// loop creates a real block device of a file. It requires root.
func loop(t *testing.T, path string) string {
	t.Helper()
	out, err := exec.Command("losetup", "--find", "--show", "--partscan", path).CombinedOutput()
	if err != nil {
		t.Fatalf("losetup (requires root, and apt-get install mount): %v: %s", err, out)
	}
	node := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", node).CombinedOutput(); err != nil {
			t.Errorf("losetup --detach: %v: %s", err, out)
		}
	})
	return node
}

func table(t *testing.T, d *Device) {
	t.Helper()
	linux, err := gpt.ParseGUID("0fc63daf-8483-4772-8e79-3d69d8477de4")
	must(t, err)
	plan, err := gpt.Plan(gpt.GUID{1}, d.Size(), d.Sector(), []gpt.Want{
		{Name: "a", Type: linux, ID: gpt.GUID{2}, Bytes: 8 << 20}, {Name: "b", Type: linux, ID: gpt.GUID{3}},
	})
	must(t, err)
	must(t, plan.Write(d))
	must(t, d.Reread(t.Context()))
}

// Files and real devices behave the same.
func TestDevice(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) string{
		"file": func(t *testing.T) string { return file(t, 32<<20) },
		"node": func(t *testing.T) string { return loop(t, file(t, 32<<20)) },
	} {
		t.Run(name, func(t *testing.T) {
			path := open(t)
			d, err := Open(path)
			must(t, err)
			if d.Size() != 32<<20 || d.Sector() != 512 {
				t.Fatalf("%d bytes in blocks of %d", d.Size(), d.Sector())
			}
			if parts, err := d.Parts(); err != nil || len(parts) != 0 {
				t.Errorf("partitions of an empty disk: %v, %v", parts, err)
			}
			table(t, d)
			parts, err := d.Parts()
			must(t, err)
			if len(parts) != 2 || parts[1].Number != 2 || parts[1].Offset != 9<<20 || parts[0].Size != 8<<20 {
				t.Fatalf("partitions %+v", parts)
			}
			must(t, d.Close())

			p, err := OpenPart(path, 2)
			must(t, err)
			defer p.Close()
			_, err = p.WriteAt([]byte("here"), 0)
			must(t, err)
			if _, err := p.WriteAt(make([]byte, 2), p.Size()-1); !errors.Is(err, unix.ENOSPC) {
				t.Errorf("beyond the end: %v", err)
			}
			if n, err := p.ReadAt(make([]byte, 10), p.Size()-4); n != 4 || err != io.EOF {
				t.Errorf("read %d bytes at the end: %v", n, err)
			}
			must(t, p.Sync())
			must(t, p.Zero(0, 4096))
			b := make([]byte, 4)
			_, err = p.ReadAt(b, 0)
			must(t, err)
			if !bytes.Equal(b, make([]byte, 4)) {
				t.Errorf("zeroed, but %q", b)
			}
			if err := p.Discard(0, 1<<20); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
				t.Error(err)
			}
			if _, err := OpenPart(path, 3); !errors.Is(err, ErrNoPartition) && !errors.Is(err, ErrInUse) {
				t.Errorf("a partition that does not exist: %v", err)
			}
		})
	}
}

// Programs get a node for a partition of every kind of disk.
func TestAttach(t *testing.T) {
	for name, path := range map[string]string{"file": file(t, 32<<20), "node": loop(t, file(t, 32<<20))} {
		d, err := Open(path)
		must(t, err)
		table(t, d)
		must(t, d.Close())
		node, release, err := Attach(path, 2)
		must(t, err)
		if out, err := exec.Command("mkfs.ext4", "-q", "-F", node).CombinedOutput(); err != nil {
			t.Errorf("%s: mkfs.ext4 (apt-get install e2fsprogs): %v: %s", name, err, out)
		}
		must(t, release())
		p, err := OpenPart(path, 2)
		must(t, err)
		if got := Probe(p); got.Type != "ext4" {
			t.Errorf("%s: %+v", name, got)
		}
		must(t, p.Close())
		whole, err := Open(path)
		must(t, err)
		if got, err := whole.Table(); err != nil || len(got.Parts) != 2 {
			t.Errorf("%s: the table was overwritten: %v", name, err)
		}
		must(t, whole.Close())
	}
}

func TestOpenRefuses(t *testing.T) {
	if _, err := Open(t.TempDir()); err == nil {
		t.Error("a directory is a disk")
	}
	if _, err := Open("/dev/null"); err == nil {
		t.Error("/dev/null is a disk")
	}
	if _, err := Open("/dev/trivet-none"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	node := loop(t, file(t, 16<<20))
	d, err := Open(node)
	must(t, err)
	defer d.Close()
	if _, err := Open(node); !errors.Is(err, ErrInUse) {
		t.Errorf("a disk that is in use: %v", err)
	}
}

func TestProbeFindsFileSystems(t *testing.T) {
	const id = "8a3f1c5e-0f8b-4d55-9c6e-0f2f0b8e8d11"
	for fsType, c := range map[string]struct {
		args []string
		uuid string
	}{
		"ext4": {[]string{"mkfs.ext4", "-q", "-L", "label", "-U", id}, id},
		"vfat": {[]string{"mkfs.vfat", "-n", "LABEL", "-i", "1a2b3c4d"}, "1A2B-3C4D"},
		"swap": {[]string{"mkswap", "-L", "label", "-U", id}, id},
	} {
		path := file(t, 64<<20)
		if out, err := exec.Command(c.args[0], append(c.args[1:], path)...).CombinedOutput(); err != nil {
			t.Fatalf("%s (apt-get install e2fsprogs dosfstools util-linux): %v: %s", c.args[0], err, out)
		}
		d, err := Open(path)
		must(t, err)
		if got := Probe(d); got.Type != fsType || got.UUID != c.uuid || !strings.EqualFold(got.Label, "label") {
			t.Errorf("%s: %+v", fsType, got)
		}
		d.Close()
	}
	d, err := Open(file(t, 1<<20))
	must(t, err)
	defer d.Close()
	if got := Probe(d); got != (FS{}) {
		t.Errorf("an empty disk: %+v", got)
	}
}

func FuzzProbe(f *testing.F) {
	f.Add([]byte("XFSB"))
	f.Fuzz(func(t *testing.T, b []byte) { Probe(bytes.NewReader(b)) })
}
