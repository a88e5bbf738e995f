package gpt

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// ram is a disk in memory.
type ram []byte

func (r ram) ReadAt(p []byte, off int64) (int, error)  { return bytes.NewReader(r).ReadAt(p, off) }
func (r ram) WriteAt(p []byte, off int64) (int, error) { return copy(r[off:], p), nil }

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

var linux = mustGUID("0fc63daf-8483-4772-8e79-3d69d8477de4")

func wants() []Want {
	return []Want{
		{Name: "boot loader", Type: mustGUID("21686148-6449-6e6f-744e-656564454649"), ID: DeriveGUID("1"),
			Bytes: 1 << 20},
		{Name: "EFI", Type: EFISystem, ID: DeriveGUID("2"), Bytes: 10<<20 + 1},
		{Name: "root äöü", Type: mustGUID("4f68bce3-e8cd-4db1-96e7-fbcaf984b709"), ID: DeriveGUID("3")},
		{Name: "swap", Type: mustGUID("0657fd6d-a4ab-43c4-84e5-0933c84b4f4f"), ID: DeriveGUID("4"), Bytes: 4 << 20},
	}
}

func TestWrittenIsRead(t *testing.T) {
	for _, sector := range []int64{512, 4096} {
		disk := make(ram, 64<<20)
		copy(disk, "boot code")
		table := must[*Table](t)(Plan(DeriveGUID("disk"), int64(len(disk)), sector, wants()))
		if table.Matches(disk) {
			t.Error("an empty disk matches")
		}
		if err := table.Write(disk); err != nil {
			t.Fatal(err)
		}
		got := must[*Table](t)(Read(disk, int64(len(disk)), sector))
		if diff := cmp.Diff(table, got, cmp.AllowUnexported(Table{})); diff != "" {
			t.Error(diff)
		}
		if !table.Matches(disk) || !strings.HasPrefix(string(disk), "boot code") {
			t.Error("the disk does not match, or its boot code is gone")
		}
		if p := got.Find(2); got.Offset(*p)%align != 0 || got.Bytes(*p) != 11<<20 || got.Find(9) != nil {
			t.Errorf("partition 2: %+v", p)
		}
		// The backup replaces a damaged primary, and writing repairs that.
		disk[sector+100] ^= 1
		clear(disk[sector : sector+8])
		got = must[*Table](t)(Read(disk, int64(len(disk)), sector))
		if !got.equal(table) || table.Matches(disk) {
			t.Error("the backup is not read, or a damaged disk matches")
		}
	}
}

func TestGrow(t *testing.T) {
	small, disk := make(ram, 64<<20), make(ram, 128<<20)
	table := must[*Table](t)(Plan(DeriveGUID("disk"), int64(len(small)), 512, wants()[:3]))
	if err := table.Write(small); err != nil {
		t.Fatal(err)
	}
	copy(disk, small)
	got := must[*Table](t)(Read(disk, int64(len(disk)), 512))
	changed, grown := got.Grow(true)
	if !changed || grown == nil || grown.Number != 3 || got.Bytes(*grown) < 100<<20 {
		t.Fatalf("changed %v, grown %+v", changed, grown)
	}
	if err := got.Write(disk); err != nil {
		t.Fatal(err)
	}
	again := must[*Table](t)(Read(disk, int64(len(disk)), 512))
	if changed, grown := again.Grow(true); changed || grown != nil || !again.Matches(disk) {
		t.Errorf("a second time changed %v, grown %+v", changed, grown)
	}
}

func TestPlanRefusesWhatDoesNotFit(t *testing.T) {
	for _, w := range [][]Want{
		{{Name: "a", Bytes: 63 << 20}},
		{{Name: "a", Bytes: 62 << 20}, {Name: "rest"}},
		{{Name: "a", Bytes: 1 << 40}, {Name: "rest"}},
	} {
		if _, err := Plan(GUID{1}, 64<<20, 512, w); err == nil {
			t.Errorf("%+v fits", w)
		}
	}
}

// Other programs must read the same.
func TestToolsAgree(t *testing.T) {
	for _, tool := range []string{"sgdisk", "sfdisk"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%v: apt-get install gdisk fdisk", err)
		}
	}
	path := filepath.Join(t.TempDir(), "disk")
	f := must[*os.File](t)(os.Create(path))
	defer f.Close()
	const size = 64 << 20
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	table := must[*Table](t)(Plan(DeriveGUID("disk"), size, 512, wants()))
	if err := table.Write(f); err != nil {
		t.Fatal(err)
	}
	out := must[[]byte](t)(exec.Command("sgdisk", "--verify", path).CombinedOutput())
	if !strings.Contains(string(out), "No problems found") {
		t.Errorf("sgdisk says:\n%s", out)
	}
	out = must[[]byte](t)(exec.Command("sfdisk", "--dump", path).Output())
	for _, p := range table.Parts {
		for _, word := range []string{strings.Fields(p.Name)[0], strings.ToUpper(p.ID.String()),
			strings.ToUpper(p.Type.String())} {
			if !strings.Contains(string(out), word) {
				t.Errorf("%s is missing from the output of sfdisk:\n%s", word, out)
			}
		}
	}
	// What another tool has written is read.
	must[[]byte](t)(exec.Command("sgdisk", "--clear", "--new=1:0:+8M", "--typecode=1:ef00", "--change-name=1:ESP",
		path).CombinedOutput())
	got := must[*Table](t)(Read(f, size, 512))
	if len(got.Parts) != 1 || got.Parts[0].Name != "ESP" || got.Parts[0].Type != EFISystem ||
		got.Bytes(got.Parts[0]) != 8<<20 {
		t.Errorf("read %+v", got.Parts)
	}
}

func TestParseGUID(t *testing.T) {
	for _, g := range []GUID{linux, EFISystem, DeriveGUID("x")} {
		for _, text := range []string{g.String(), strings.ToUpper(g.String())} {
			if got, err := ParseGUID(text); err != nil || got != g {
				t.Errorf("%s: %v, %v", text, got, err)
			}
		}
	}
	for _, bad := range []string{"", "ntfs", "c12a7328-f81f-11d2-ba4b-00a0c93ec9", "c12a7328f81f11d2ba4b00a0c93ec93b"} {
		if _, err := ParseGUID(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func FuzzRead(f *testing.F) {
	disk := make(ram, 4<<20)
	table, _ := Plan(GUID{1}, int64(len(disk)), 512, []Want{{Name: "a", Type: linux, ID: GUID{2}}})
	table.Write(disk)
	f.Add([]byte(disk[512:]), int64(4<<20))
	f.Add([]byte("EFI PART"), int64(1<<40))
	f.Fuzz(func(t *testing.T, b []byte, size int64) {
		if len(b) > 4<<20 {
			return
		}
		d := make(ram, 4<<20)
		copy(d[512:], b)
		got, err := Read(d, int64(len(d)), 512)
		if err != nil {
			return
		}
		got.Grow(true)
		if err := got.Write(d); err != nil {
			return
		}
		again, err := Read(d, int64(len(d)), 512)
		if err != nil || !again.equal(got) {
			t.Fatalf("written and read again: %v", errors.Join(err))
		}
	})
}
