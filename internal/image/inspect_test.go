package image

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
)

func inspectBytes(b []byte) (Info, error) { return Inspect(bytes.NewReader(b), int64(len(b))) }

// made runs a program on a new file of some size and returns the file.
func made(t *testing.T, size int64, input string, program ...string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "made")
	f, err := os.Create(path)
	must(t, err)
	must(t, errors.Join(f.Truncate(size), f.Close()))
	cmd := exec.Command(program[0], append(program[1:], path)...)
	cmd.Stdin = strings.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v (apt-get install fdisk e2fsprogs qemu-utils): %v: %s", program, err, out)
	}
	b, err := os.ReadFile(path)
	must(t, err)
	return b
}

func TestInspect(t *testing.T) {
	gpt := made(t, 64<<20, "label: gpt\nsize=8MiB, type=uefi, name=\"EFI\"\ntype=linux, name=\"root\"\n", "sfdisk",
		"-q")
	mbr := made(t, 64<<20, "label: dos\nsize=8MiB, type=83\n", "sfdisk", "-q")
	ext4 := made(t, 8<<20, "", "mkfs.ext4", "-q")
	layout := archive(t, "blobs/", "blobs/sha256/", "blobs/sha256/x", "index.json", "oci-layout")
	size := func(b []byte) int64 { return int64(len(b)) }
	tree, small, large := archive(t, "./", "./etc/passwd"), gpt[:1<<20], layoutOf(t, 70<<20)
	for name, c := range map[string]struct {
		file []byte
		want Info
	}{
		"gpt": {gpt, Info{Format: Raw, RawBytes: size(gpt), Content: "gpt"}},
		"gpt zstd": {pack(t, Zstd, gpt, "--stream-size=67108864"),
			Info{Compression: Zstd, Format: Raw, RawBytes: size(gpt), Content: "gpt"}},
		"gpt zstd x 2": {append(pack(t, Zstd, gpt, "--stream-size=67108864"),
			pack(t, Zstd, gpt, "--stream-size=67108864", "--no-check")...),
			Info{Compression: Zstd, Format: Raw, RawBytes: 2 * size(gpt), Content: "gpt"}},
		"size unset": {pack(t, Zstd, gpt), Info{Compression: Zstd, Format: Raw, Content: "gpt"}},
		"mbr gzip":   {pack(t, Gzip, mbr), Info{Compression: Gzip, Format: Raw, Content: "mbr"}},
		"ext4 xz":    {pack(t, XZ, ext4), Info{Compression: XZ, Format: Raw, Content: "ext"}},
		"unknown":    {noise(1000), Info{Format: Raw, RawBytes: 1000}},
		"tar":        {tree, Info{Format: Tar, RawBytes: size(tree)}},
		"tar gzip":   {pack(t, Gzip, archive(t, "index.html", "blobs/x")), Info{Compression: Gzip, Format: Tar}},
		"no layout": {archive(t, "blobs/x", "index.json"),
			Info{Format: Tar, RawBytes: size(archive(t, "blobs/x", "index.json"))}},
		"oci":              {layout, Info{Format: OCI, RawBytes: size(layout)}},
		"oci zstd":         {pack(t, Zstd, layout), Info{Compression: Zstd, Format: OCI}},
		"oci, large, zstd": {pack(t, Zstd, large), Info{Compression: Zstd, Format: OCI}},
		"oci, large":       {large, Info{Format: OCI, RawBytes: size(large)}},
		"qcow2": {qcow2Of(t, gpt, "-c"),
			Info{Within: Qcow2, Format: Raw, RawBytes: size(gpt), Content: "gpt"}},
		"qcow2 xz":       {pack(t, XZ, qcow2Of(t, gpt)), Info{Compression: XZ, Within: Qcow2, Format: Raw}},
		"docker archive": {dockerArchive(t), Info{Within: DockerArchive, Format: OCI}},
		"docker archive, gzip": {pack(t, Gzip, dockerArchive(t)), Info{Compression: Gzip, Within: DockerArchive,
			Format: OCI}},
		"podman save, gzip": {pack(t, Gzip, archive(t, strings.Repeat("0b", 32)+".tar", "manifest.json")),
			Info{Compression: Gzip, Within: DockerArchive, Format: OCI}},
		"disk.raw": {tarOf(t, small, ""), Info{Within: DiskRaw, Format: Raw, RawBytes: 1 << 20, Content: "gpt"}},
		"disk.raw xz": {pack(t, XZ, tarOf(t, small, "")),
			Info{Compression: XZ, Within: DiskRaw, Format: Raw, RawBytes: 1 << 20, Content: "gpt"}},
		"disk.raw, sparse": {pack(t, Gzip, tarOf(t, small, "", "--sparse")),
			Info{Compression: Gzip, Within: DiskRaw, Format: Raw, RawBytes: 1 << 20, Content: "gpt"}},
		"disk.raw in a tree": {archive(t, "./", "etc/", "disk.raw"),
			Info{Format: Tar, RawBytes: size(archive(t, "./", "etc/", "disk.raw"))}},
	} {
		got, err := inspectBytes(c.file)
		parts := got.Parts
		got.Parts = nil
		if err != nil || got.Compression != c.want.Compression || got.Format != c.want.Format ||
			got.Within != c.want.Within || got.RawBytes != c.want.RawBytes || got.Content != c.want.Content {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		}
		want := map[string][]Part{
			"gpt": {{1, 8 << 20, "EFI system", "EFI"}, {2, 64<<20 - 8<<20 - 1<<20 - 1<<20, "Linux", "root"}},
			"mbr": {{1, 8 << 20, "0x83", ""}},
		}[got.Content]
		if !slices.Equal(parts, want) {
			t.Errorf("%s: partitions %+v, not %+v", name, parts, want)
		}
	}
}

func TestInspectRefuses(t *testing.T) {
	foreign := func(format string) []byte {
		path := filepath.Join(t.TempDir(), "x")
		if out, err := exec.Command("qemu-img", "create", "-q", "-f", format, path, "1M").CombinedOutput(); err != nil {
			t.Fatalf("qemu-img (apt-get install qemu-utils): %v: %s", err, out)
		}
		b, err := os.ReadFile(path)
		must(t, err)
		return b
	}
	iso := make([]byte, 40<<10)
	copy(iso[isoAt:], isoMagic)
	zst := pack(t, Zstd, noise(1<<20), "--stream-size=1048576")
	for name, c := range map[string]struct {
		file []byte
		says string
	}{
		"empty":          {nil, "empty"},
		"empty zstd":     {pack(t, Zstd, nil), "empty"},
		"half a qcow2":   {foreign("qcow2")[:4096], "damaged"},
		"vmdk in qcow2":  {qcow2Of(t, foreign("vmdk")), "qemu-img convert -f vmdk -O raw"},
		"qcow2 in qcow2": {qcow2Of(t, foreign("qcow2")), "a qcow2 image"},
		"docker save without a manifest": {archive(t, strings.Repeat("0a", 32)+".json", strings.Repeat("0b", 32)+"/",
			strings.Repeat("0b", 32)+"/layer.tar", "repositories"), `lacks the file "manifest.json"`},
		"empty disk.raw":   {archive(t, "disk.raw"), "disk.raw in the archive is empty"},
		"zstd in disk.raw": {tarOf(t, zst, ""), "compressed by zstd"},
		"vmdk":             {foreign("vmdk"), "qemu-img convert -f vmdk -O raw"},
		"vhdx":             {foreign("vhdx"), "qemu-img convert -f vhdx -O raw"},
		"vhd":              {foreign("vpc"), "qemu-img convert -f vpc -O raw"},
		"vdi":              {foreign("vdi"), "qemu-img convert -f vdi -O raw"},
		"iso":              {iso, "not its installer"},
		"iso xz":           {pack(t, XZ, iso), "not its installer"},
		"zip":              {[]byte("PK\x03\x04 and so on"), "zip archive"},
		"twice":            {pack(t, Gzip, pack(t, Zstd, noise(100))), "compressed twice"},
		"zstd cut off":     {zst[:len(zst)-9], "cut off"},
		"zstd header only": {zst[:6], "cut off"},
	} {
		if _, err := inspectBytes(c.file); !errors.Is(err, trivet.ErrInvalid) ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	broken := errors.New("bad sector")
	if _, err := Inspect(failing{broken}, 100); !errors.Is(err, broken) || errors.Is(err, trivet.ErrInvalid) {
		t.Error(err)
	}
}

type failing struct{ err error }

func (f failing) ReadAt([]byte, int64) (int, error) { return 0, f.err }

// What is downloaded instead of an image is named, compressed or not.
func TestInspectRefusesTexts(t *testing.T) {
	digest := strings.Repeat("0f", 32)
	for text, says := range map[string]string{
		"  <!DOCTYPE html>\n<html><title>404</title>":     `an HTML page, not a disk: "<!DOCTYPE html>"`,
		"\xef\xbb\xbf<HTML><body>Zugang gew\xe4hren":      "an HTML page",
		"<?xml version='1.0'?><Error>NoSuchKey</Error>":   "an XML document",
		`{"message": "Not Found"}`:                        "a JSON document",
		digest + "  debian-12.raw\n":                      "a list of checksums",
		"SHA512 (debian-12.qcow2) = 00\n":                 "a list of checksums",
		"-----BEGIN PGP SIGNATURE-----\n":                 "a signature",
		"#!/bin/sh\nexec qemu-img\n":                      "a script",
		"Not Found\r\n":                                   `a text, not a disk: "Not Found"`,
		strings.Repeat("Zeile \u00e4 ", 30000):            `"Zeile ä Zeile`,
		"\n":                                              "a text",
		"version https://git-lfs.github.com/spec/v1\noid": "a text",
	} {
		for _, compression := range []string{None, Gzip} {
			if _, err := inspectBytes(pack(t, compression, []byte(text))); !errors.Is(err, trivet.ErrInvalid) ||
				!strings.Contains(err.Error(), says) || len(err.Error()) > 400 {
				t.Errorf("%.30q, %s: %v", text, compression, err)
			}
		}
	}
	for _, disk := range [][]byte{noise(1000), make([]byte, 4096), []byte("MBR of text only\x00")} {
		if _, err := inspectBytes(disk); err != nil {
			t.Errorf("%.30q: %v", disk, err)
		}
	}
}
