package action

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/agent/action/block"
	"github.com/trivet-project/trivet/internal/agent/action/gpt"
)

// each runs a test on a real block device and on a simulated machine.
func each(t *testing.T, size int64, f func(t *testing.T, b *bench)) {
	t.Run("loop", func(t *testing.T) { f(t, onLoop(t, size)) })
	t.Run("file", func(t *testing.T) { f(t, onFile(t, size)) })
}

func (b *bench) open() *block.Device {
	b.t.Helper()
	path, err := b.env.Host.Disk(trivet.DiskHints{Path: b.disk})
	must(b.t, err)
	d, err := block.Open(path)
	must(b.t, err)
	return d
}

func (b *bench) table() *gpt.Table {
	b.t.Helper()
	d := b.open()
	defer d.Close()
	t, err := d.Table()
	must(b.t, err)
	return t
}

var threeParts = map[string]any{"partitions": []any{
	map[string]any{"name": "efi", "size": "40MiB", "type": "efi"},
	map[string]any{"name": "root", "size": "rest", "type": "root"},
	map[string]any{"name": "swap", "size": "16MiB", "type": "swap"},
}}

func TestPartitionTwiceIsPartitionOnce(t *testing.T) {
	each(t, 128<<20, func(t *testing.T, b *bench) {
		b.do("partition", threeParts)
		first := b.table()
		if len(first.Parts) != 3 || first.Parts[1].Name != "root" || first.Bytes(first.Parts[0]) != 40<<20 {
			t.Fatalf("made %+v", first.Parts)
		}
		d := b.open()
		_, err := d.WriteAt([]byte("data"), first.Offset(first.Parts[1]))
		must(t, err)
		must(t, d.Close())
		b.do("partition", threeParts)
		if b.note != "the partitions exist already" {
			t.Errorf("note %q", b.note)
		}
		got := make([]byte, 4)
		d = b.open()
		defer d.Close()
		_, err = d.ReadAt(got, first.Offset(first.Parts[1]))
		if err != nil || string(got) != "data" {
			t.Errorf("a repetition lost %q, %v", got, err)
		}
	})
}

func TestFormat(t *testing.T) {
	b := onLoop(t, 128<<20)
	b.do("partition", threeParts)
	for i, fs := range []string{"vfat", "ext4", "swap"} {
		for range 2 {
			b.do("format", map[string]any{"partition": i + 1, "fs": fs, "label": "LABEL"})
		}
		d, err := block.OpenPart(b.disk, i+1)
		must(t, err)
		got := block.Probe(d)
		must(t, d.Close())
		if got.Type != fs || got.Label != "LABEL" || !strings.Contains(strings.ReplaceAll(b.note, "-", ""),
			strings.ToLower(strings.ReplaceAll(got.UUID, "-", ""))) {
			t.Errorf("%s: created %+v, note %q", fs, got, b.note)
		}
	}
	node, release, err := block.Attach(b.disk, 3)
	must(t, err)
	defer func() { must(t, release()) }()
	out, err := exec.Command("swaplabel", node).CombinedOutput() // checked by another program
	if err != nil || !strings.Contains(string(out), "LABEL") {
		t.Errorf("swaplabel (apt-get install util-linux): %v: %s", err, out)
	}
	if out, err := exec.Command("swapon", node).CombinedOutput(); err != nil {
		t.Errorf("swapon: %v: %s", err, out)
	} else if out, err := exec.Command("swapoff", node).CombinedOutput(); err != nil {
		t.Errorf("swapoff: %v: %s", err, out)
	}
}

func TestPartitionsThatDoNotFit(t *testing.T) {
	b := onFile(t, 32<<20)
	large := map[string]any{"partitions": []any{map[string]any{"size": "1GiB"}}}
	b.fail("partition", b.on(large), trivet.FaultConfiguration, true, "does not fit")
}

func TestWipe(t *testing.T) {
	for _, mode := range []string{"quick", "discard", "zero"} {
		each(t, 64<<20, func(t *testing.T, b *bench) {
			b.do("partition", map[string]any{"partitions": []any{
				map[string]any{"size": "16MiB"}, map[string]any{"size": "rest"},
			}})
			table := b.table()
			d := b.open()
			for _, p := range table.Parts {
				for _, off := range []int64{table.Offset(p), table.Offset(p) + table.Bytes(p) - 512} {
					_, err := d.WriteAt([]byte("signature"), off)
					must(t, err)
				}
			}
			_, err := d.WriteAt([]byte("data"), 30<<20)
			must(t, err)
			must(t, d.Close())
			b.do("wipe", map[string]any{"mode": mode})
			d = b.open()
			defer d.Close()
			if _, err := d.Table(); !errors.Is(err, gpt.ErrNone) {
				t.Errorf("%s: a table is left: %v", mode, err)
			}
			all, err := io.ReadAll(io.NewSectionReader(d, 0, d.Size()))
			must(t, err)
			if bytes.Contains(all, []byte("signature")) {
				t.Errorf("%s: a signature is left", mode)
			}
			if left := bytes.Contains(all, []byte("data")); left && mode == "zero" || !left && mode == "quick" {
				t.Errorf("%s: data is left: %v", mode, left)
			}
		})
	}
}

func TestDiskNotFound(t *testing.T) {
	for _, b := range []*bench{onFile(t, 1<<20), newBench(t, &Machine{Dir: t.TempDir()}, "")} {
		b.fail("wipe", map[string]any{"disk": "/dev/trivet-none"}, trivet.FaultConfiguration, true,
			"no disk matches the hints")
		b.fail("wipe", map[string]any{"disk": map[string]any{"serial": "none"}}, trivet.FaultConfiguration, true,
			"no disk matches the hints {serial: none}")
	}
	b := onFile(t, 1<<20)
	b.fail("image", map[string]any{"image": "none"}, trivet.FaultConfiguration, true, `no image "none"`)
	b.fail("wipe", map[string]any{"disk": "/etc"}, trivet.FaultConfiguration, true, "with.disk")
}

func TestADiskInUseIsNotTouched(t *testing.T) {
	b := onLoop(t, 64<<20)
	b.do("format", map[string]any{"fs": "ext4"})
	b.in(0, func(string) {
		b.fail("wipe", b.on(nil), trivet.FaultMachine, false, "is in use")
	})
}

// diskImage is one with a table and an ext4 on its last partition.
func diskImage(t *testing.T) []byte {
	t.Helper()
	b := onLoop(t, 48<<20)
	b.do("partition", map[string]any{"partitions": []any{
		map[string]any{"size": "1MiB", "type": "bios"}, map[string]any{"size": "rest", "type": "root"},
	}})
	b.do("format", map[string]any{"partition": 2, "fs": "ext4", "label": "root"})
	b.do("file", map[string]any{"partition": 2, "path": "/etc/os-release", "content": "ID=test\n"})
	d := b.open()
	defer d.Close()
	raw, err := io.ReadAll(io.NewSectionReader(d, 0, d.Size()))
	must(t, err)
	return raw
}

func pack(t testing.TB, raw []byte) []byte {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	must(t, err)
	return z.EncodeAll(raw, nil)
}

func TestAnImageGrowsIntoItsDisk(t *testing.T) {
	raw := diskImage(t)
	b := onLoop(t, 96<<20)
	b.add("os", "raw", "zstd", pack(t, raw))
	for range 2 {
		b.do("image", map[string]any{"image": "os", "grow": true})
	}
	table := b.table()
	if p := table.Find(2); p == nil || table.Bytes(*p) < 90<<20 {
		t.Errorf("partition 2: %+v", p)
	}
	b.in(0, func(dir string) { // found without a number
		var fs unix.Statfs_t
		must(t, unix.Statfs(dir, &fs))
		if got, err := os.ReadFile(dir + "/etc/os-release"); err != nil || string(got) != "ID=test\n" {
			t.Errorf("%q, %v", got, err)
		}
		if size := int64(fs.Blocks) * fs.Bsize; size < 80<<20 {
			t.Errorf("the file system has %d MiB", size>>20)
		}
	})
	if !strings.Contains(b.note, "MiB/s") || b.seen == 0 {
		t.Errorf("note %q, progress %d", b.note, b.seen)
	}
}

func TestImageFailures(t *testing.T) {
	raw := make([]byte, 2<<20)
	r := rand.NewChaCha8([32]byte{})
	r.Read(raw)
	b := onFile(t, 1<<20)
	b.add("large", "raw", "", raw)
	b.fail("image", b.on(map[string]any{"image": "large"}), trivet.FaultConfiguration, true, "does not fit")
	b.run.Spec.Images[0].RawBytes = int64(len(raw))
	b.fail("image", b.on(map[string]any{"image": "large"}), trivet.FaultConfiguration, true,
		"has 2097152 bytes and does not fit")
	b.add("torn", "raw", "zstd", pack(t, raw[:500000])[:300000])
	b.fail("image", b.on(map[string]any{"image": "torn"}), trivet.FaultImage, true, "torn")
	b.add("junk", "raw", "gzip", raw[:1000])
	b.fail("image", b.on(map[string]any{"image": "junk"}), trivet.FaultImage, true, "junk")
	b.add("files", "tar", "", raw[:1000])
	b.fail("image", b.on(map[string]any{"image": "files"}), trivet.FaultConfiguration, true, "requires raw")
	b.fail("archive", b.on(map[string]any{"image": "files"}), trivet.FaultImage, true, "files")
	delete(b.blobs, b.run.Spec.Images[0].Blob.Digest)
	b.run.Spec.Images[0].RawBytes = 0
	b.fail("image", b.on(map[string]any{"image": "large"}), trivet.FaultNetwork, false, "fetch image large")
	b.add("small", "raw", "", raw[:1000])
	b.fail("image", b.on(map[string]any{"image": "small", "partition": 3}), trivet.FaultConfiguration, true,
		"no such partition")
	b.fail("image", b.on(map[string]any{"image": "small", "grow": true}), trivet.FaultConfiguration, true,
		"no GUID partition table")
}
