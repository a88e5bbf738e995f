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

// deb is a package with one member, data.tar or another.
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

// sparse is an archive of a file of so many zeros that takes none of them (GNU's form in PAX, 1.0).
func sparse(t testing.TB, size int64) []byte {
	var records string
	for _, r := range []string{"GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name=zeros", fmt.Sprintf("GNU.sparse.realsize=%d", size)} {
		records += fmt.Sprintf("%d %s\n", len(r)+len("00 \n"), r) // each with its own length, of two digits
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	pieces := fmt.Sprintf("1\n%d\n0\n", size) // one piece, at the end, of nothing
	for _, content := range []string{records, pieces + strings.Repeat("\x00", 512-len(pieces))} {
		if err := w.WriteHeader(&tar.Header{Name: "zeros", Size: int64(len(content)), Mode: 0o644, Format: tar.FormatUSTAR}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	// The first entry describes the second: a type that the writer does not give from outside.
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

// A small package that would fill the disk is refused before it begins.
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

// Whatever a package holds, it is unpacked below its folder, or is an error and leaves nothing.
func FuzzUnpackDeb(f *testing.F) {
	plain := tarOf(f, tar.Header{Name: "./usr/lib/a.ko", Typeflag: tar.TypeReg}, tar.Header{Name: "lib", Linkname: "/usr/lib", Typeflag: tar.TypeSymlink},
		tar.Header{Name: "usr/lib/b", Linkname: "./usr/lib/a.ko", Typeflag: tar.TypeLink})
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	if _, err := z.Write(plain); err != nil || z.Close() != nil {
		f.Fatal(err)
	}
	for _, seed := range [][]byte{
		deb("data.tar", plain), deb("data.tar.gz", zipped.Bytes()), deb("data.tar.gz/", zipped.Bytes()[:40]), deb("control.tar", plain),
		append(deb("debian-binary", []byte("2.0\n")), deb("data.tar", plain)[8:]...), deb("data.tar.lzma", nil), deb("data.tar.zst", []byte("(\xb5/\xfd")),
		deb("data.tar", tarOf(f, tar.Header{Name: "../../up", Typeflag: tar.TypeReg}, tar.Header{Name: "out", Linkname: "../..", Typeflag: tar.TypeSymlink},
			tar.Header{Name: "out/x", Typeflag: tar.TypeReg})),
		[]byte("!<arch>\n"), nil,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		if bytes.Contains(content, []byte("data.tar.xz")) || bytes.Contains(content, []byte("data.tar.zst")) && len(content) > 4<<10 {
			return // another program's, or a library's, with fuzzing of its own
		}
		top := t.TempDir()
		path, cache := filepath.Join(top, "p.deb"), filepath.Join(top, "cache")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		err := unpackDeb(t.Context(), path, filepath.Join(cache, "p"))
		if list, _ := os.ReadDir(top); len(list) > 2 {
			t.Errorf("it wrote beside its folder: %v", list)
		}
		list, _ := os.ReadDir(cache)
		if err == nil != (len(list) == 1) {
			t.Errorf("%v, and there is %v", err, list)
		}
		var atPath *fs.PathError
		var atLink *os.LinkError
		if err != nil && !errors.Is(err, trivet.ErrInvalid) && !errors.Is(err, trivet.ErrTooLarge) && !errors.As(err, &atPath) && !errors.As(err, &atLink) {
			t.Errorf("an error of no kind: %v", err)
		}
	})
}

// What apt prints is read as packages whose files have plain names.
func FuzzAptAnswers(f *testing.F) {
	f.Add("'http://deb.debian.org/debian/pool/main/l/linux/linux-image_6.1.1_amd64.deb' linux-image_6.1.1%2b1_amd64.deb 123 SHA256:" + strings.Repeat("0a", 32) + "\n")
	f.Add("linux-image-amd64\n  Depends: linux-image-6.1.0-1-amd64\n PreDepends: libc6\n |Depends: <x>\n")
	f.Add("'x' ../../x_1_amd64.deb 1 SHA256:" + strings.Repeat("f", 64))
	f.Add("'x' a/b_1_amd64.deb 1 SHA256:" + strings.Repeat("f", 64))
	f.Fuzz(func(t *testing.T, out string) {
		for _, m := range uriLine.FindAllStringSubmatch(out, -1) {
			if name := debName.FindStringSubmatch(m[1]); name != nil && (filepath.Base(m[1]) != m[1] || strings.HasPrefix(name[1], "-")) {
				t.Errorf("a package's file is %q", m[1])
			}
		}
		for form, depends := range map[string]*regexp.Regexp{"linux-image-": kernelDepends, "lib": libDepends} {
			for _, m := range depends.FindAllStringSubmatch(out, -1) {
				if !strings.HasPrefix(m[1], form) || strings.ContainsAny(m[1], "/ \t\n") {
					t.Errorf("a package is %q", m[1])
				}
			}
		}
	})
}
