package platform

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/u-root/u-root/pkg/cpio"

	"github.com/trivet-project/trivet"
)

// elfOf returns a program that only its header makes one.
func elfOf(machine uint16, text string) string {
	h := make([]byte, 64)
	copy(h, "\x7fELF\x02\x01\x01")
	binary.LittleEndian.PutUint16(h[16:], 2) // executable
	binary.LittleEndian.PutUint16(h[18:], machine)
	binary.LittleEndian.PutUint32(h[20:], 1)
	binary.LittleEndian.PutUint16(h[52:], 64)
	return string(h) + text
}

const amd64, arm64 = 62, 183

func section(text string) *io.SectionReader {
	return io.NewSectionReader(strings.NewReader(text), 0, int64(len(text)))
}

// initramfs returns one with an agent, and the length of its base.
func initramfs(t *testing.T, base, agent compression, program string) (content []byte, n int64) {
	t.Helper()
	var b bytes.Buffer
	f := files{}
	f.add("etc/hosts", 0o644, []byte("127.0.0.1 localhost\n"))
	f.link("sbin/modprobe", "../init")
	if _, err := f.writeTo(t.Context(), &b, base); err != nil {
		t.Fatal(err)
	}
	n = int64(b.Len())
	if _, err := writeAgent(t.Context(), &b, section(program), agent); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), n
}

// contents returns the files of an initramfs, by the archives that a kernel unpacks one after the other.
func contents(t *testing.T, r io.Reader) map[string]string {
	t.Helper()
	all, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for len(all) > 0 {
		end := bytes.Index(all, []byte(cpio.Trailer)) + len(cpio.Trailer)
		for end < len(all) && all[end] == 0 {
			end++
		}
		records, err := cpio.ReadAllRecords(cpio.Newc.Reader(bytes.NewReader(all[:end])))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			text, err := io.ReadAll(io.NewSectionReader(r, 0, int64(r.FileSize)))
			if err != nil {
				t.Fatal(err)
			}
			got[r.Name] = string(text)
		}
		all = all[end:]
	}
	return got
}

// An initramfs with another agent is what a build with that agent gives, byte by byte.
func TestWithAgent(t *testing.T) {
	t.Parallel()
	former, latter := elfOf(amd64, "former"), elfOf(amd64, strings.Repeat("latter", 1000))
	for _, tc := range []struct {
		name        string
		base, agent compression
		unpack      func(io.Reader) (io.Reader, error)
	}{
		{"zstd", zstdBest, zstdSmall, func(r io.Reader) (io.Reader, error) { return zstd.NewReader(r) }},
		{"gzip", gzipBest, gzipBest, func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			was, base := initramfs(t, tc.base, tc.agent, former)
			want, _ := initramfs(t, tc.base, tc.agent, latter)
			var got bytes.Buffer
			err := WithAgent(t.Context(), &got, bytes.NewReader(was), base, section(latter), "amd64")
			if err != nil || !bytes.Equal(got.Bytes(), want) {
				t.Fatalf("%d bytes, %v; a build has %d", got.Len(), err, len(want))
			}
			r, err := tc.unpack(&got)
			if err != nil {
				t.Fatal(err)
			}
			found := contents(t, r)
			if found["init"] != latter || found["etc/hosts"] != "127.0.0.1 localhost\n" || found["sbin/modprobe"] != "../init" {
				t.Errorf("it has %q", found)
			}
		})
	}
}

// What would not start is refused.
func TestWithAgentRefuses(t *testing.T) {
	t.Parallel()
	was, base := initramfs(t, zstdBest, zstdSmall, elfOf(amd64, ""))
	for _, tc := range []struct {
		initrd  []byte
		base    int64
		program string
		arch    string
		want    string
	}{
		{was, base, elfOf(arm64, ""), "amd64", "is for EM_AARCH64"},
		{was, base, "#!/bin/sh", "amd64", "not an ELF program"},
		{was, base, elfOf(amd64, ""), "mips", "unknown architecture"},
		{was, int64(len(was)) + 1, elfOf(amd64, ""), "amd64", "and its base"},
		{was, 1, elfOf(amd64, ""), "amd64", "has no base"},
		{[]byte("kernel"), 6, elfOf(amd64, ""), "amd64", "neither zstd nor gzip"},
	} {
		err := WithAgent(t.Context(), io.Discard, bytes.NewReader(tc.initrd), tc.base, section(tc.program), tc.arch)
		if !errors.Is(err, trivet.ErrInvalid) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v; want %q", err, tc.want)
		}
	}
}

// What a build writes about its files is what an import reads.
func TestBuilt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if b, err := ReadBuilt(dir); b != nil || err != nil {
		t.Errorf("without the file: %v, %v", b, err)
	}
	want := Built{Arch: "arm64", Kernel: "6.1", Initrd: "sha256:0",
		Agent: trivet.PlatformAgent{Base: 7, Program: "sha256:1", Version: "v1", Release: "1.0"}}
	if err := writeBuilt(dir, &want); err != nil {
		t.Fatal(err)
	}
	if b, err := ReadBuilt(dir); err != nil || *b != want {
		t.Errorf("%+v, %v", b, err)
	}
}
