package platform

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
)

// deb returns a package with one member.
func deb(name string, content []byte) []byte {
	header := fmt.Sprintf("%-16s%-12d%-6d%-6d%-8s%-10d`\n", name, 0, 0, 0, "100644", len(content))
	return append([]byte("!<arch>\n"+header), content...)
}

func tarOf(t testing.TB, headers ...tar.Header) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		h.Size, h.Mode = int64(len("text")), 0o644
		if h.Typeflag != tar.TypeReg {
			h.Size = 0
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(w, strings.NewReader("text"), h.Size); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// sparse returns an archive of a sparse file of zeros (GNU format 1.0 in PAX).
func sparse(t testing.TB, size int64) []byte {
	var records string
	for _, r := range []string{"GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name=zeros",
		fmt.Sprintf("GNU.sparse.realsize=%d", size)} {
		records += fmt.Sprintf("%d %s\n", len(r)+len("00 \n"), r) // each begins with its length, of two digits
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	pieces := fmt.Sprintf("1\n%d\n0\n", size) // one empty piece, at the end
	for _, content := range []string{records, pieces + strings.Repeat("\x00", 512-len(pieces))} {
		h := &tar.Header{Name: "zeros", Size: int64(len(content)), Mode: 0o644, Format: tar.FormatUSTAR}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	// The first entry describes the second: a type that the writer does not support.
	all := b.Bytes()
	all[156] = tar.TypeXHeader
	copy(all[148:156], "        ")
	sum := 0
	for _, c := range all[:512] {
		sum += int(c)
	}
	copy(all[148:156], fmt.Sprintf("%06o\x00 ", sum))
	return all
}

// A small package that would fill the disk is refused before it is unpacked.
func TestSparseFile(t *testing.T) {
	dir := t.TempDir()
	for size, want := range map[int64]error{4096: nil, maxUnpacked + 1: trivet.ErrTooLarge} {
		path := filepath.Join(dir, "p.deb")
		if err := os.WriteFile(path, deb("data.tar", sparse(t, size)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := unpackDeb(t.Context(), path, filepath.Join(dir, "cache", "p")); !errors.Is(err, want) {
			t.Errorf("%d zeros: %v, want %v", size, err, want)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "cache", "p", "zeros")); err != nil || info.Size() != 4096 {
		t.Errorf("%v, %v", info, err)
	}
}

// Any package is unpacked below its directory, or returns an error and leaves no files.
func FuzzUnpackDeb(f *testing.F) {
	plain := tarOf(f, tar.Header{Name: "./usr/lib/a.ko", Typeflag: tar.TypeReg},
		tar.Header{Name: "lib", Linkname: "/usr/lib", Typeflag: tar.TypeSymlink},
		tar.Header{Name: "usr/lib/b", Linkname: "./usr/lib/a.ko", Typeflag: tar.TypeLink})
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	if _, err := z.Write(plain); err != nil || z.Close() != nil {
		f.Fatal(err)
	}
	for _, seed := range [][]byte{
		deb("data.tar", plain), deb("data.tar.gz", zipped.Bytes()), deb("data.tar.gz/", zipped.Bytes()[:40]),
		deb("control.tar", plain),
		append(deb("debian-binary", []byte("2.0\n")), deb("data.tar", plain)[8:]...), deb("data.tar.lzma", nil),
		deb("data.tar.zst", []byte("(\xb5/\xfd")),
		deb("data.tar", tarOf(f, tar.Header{Name: "../../up", Typeflag: tar.TypeReg},
			tar.Header{Name: "out", Linkname: "../..", Typeflag: tar.TypeSymlink},
			tar.Header{Name: "out/x", Typeflag: tar.TypeReg})),
		[]byte("!<arch>\n"), nil,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		zst := bytes.Contains(content, []byte("data.tar.zst"))
		if bytes.Contains(content, []byte("data.tar.xz")) || zst && len(content) > 4<<10 {
			return // decompressors are fuzzed in their own projects
		}
		top := t.TempDir()
		path, cache := filepath.Join(top, "p.deb"), filepath.Join(top, "cache")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		err := unpackDeb(t.Context(), path, filepath.Join(cache, "p"))
		if list, _ := os.ReadDir(top); len(list) > 2 {
			t.Errorf("files outside the directory: %v", list)
		}
		list, _ := os.ReadDir(cache)
		if err == nil != (len(list) == 1) {
			t.Errorf("%v, with %v in the cache", err, list)
		}
		var atPath *fs.PathError
		var atLink *os.LinkError
		known := errors.Is(err, trivet.ErrInvalid) || errors.Is(err, trivet.ErrTooLarge) ||
			errors.As(err, &atPath) || errors.As(err, &atLink)
		if err != nil && !known {
			t.Errorf("an error of no known kind: %v", err)
		}
	})
}

// The output of apt is parsed as packages with plain file names.
func FuzzAptOutput(f *testing.F) {
	f.Add("'http://deb.debian.org/debian/pool/main/l/linux/linux-image_6.1.1_amd64.deb' " +
		"linux-image_6.1.1%2b1_amd64.deb 123 SHA256:" + strings.Repeat("0a", 32) + "\n")
	f.Add("linux-image-amd64\n  Depends: linux-image-6.1.0-1-amd64\n PreDepends: libc6\n |Depends: <x>\n")
	f.Add("'x' ../../x_1_amd64.deb 1 SHA256:" + strings.Repeat("f", 64))
	f.Add("'x' a/b_1_amd64.deb 1 SHA256:" + strings.Repeat("f", 64))
	f.Fuzz(func(t *testing.T, out string) {
		for _, m := range uriLine.FindAllStringSubmatch(out, -1) {
			name := debName.FindStringSubmatch(m[1])
			if name != nil && (filepath.Base(m[1]) != m[1] || strings.HasPrefix(name[1], "-")) {
				t.Errorf("the file of a package is %q", m[1])
			}
		}
		for prefix, depends := range map[string]*regexp.Regexp{"linux-image-": kernelDepends, "lib": libDepends} {
			for _, m := range depends.FindAllStringSubmatch(out, -1) {
				if !strings.HasPrefix(m[1], prefix) || strings.ContainsAny(m[1], "/ \t\n") {
					t.Errorf("a package is named %q", m[1])
				}
			}
		}
	})
}
