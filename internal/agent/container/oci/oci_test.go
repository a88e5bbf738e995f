package oci

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// archive creates a tar of headers; Linkname doubles as the content of ordinary files.
func archive(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		content := ""
		if h.Typeflag == tar.TypeReg {
			content, h.Linkname = h.Linkname, ""
			h.Size = int64(len(content))
		}
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		must(t, w.WriteHeader(&h))
		_, err := w.Write([]byte(content))
		must(t, err)
	}
	must(t, w.Close())
	return b.Bytes()
}

func file(name, content string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Linkname: content}
}

func dir(name string) tar.Header { return tar.Header{Typeflag: tar.TypeDir, Name: name} }

func link(name, to string) tar.Header {
	return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to}
}

func unpack(t *testing.T, layers ...[]byte) string {
	t.Helper()
	img := empty.Image
	for _, l := range layers {
		var err error
		img, err = mutate.AppendLayers(img, static.NewLayer(l, types.OCIUncompressedLayer))
		must(t, err)
	}
	root := t.TempDir()
	must(t, Unpack(t.Context(), img, root, OnDisk, func(int64) {}))
	return root
}

// list returns a tree as text: names, and the content of files.
func list(t *testing.T, root string) string {
	t.Helper()
	var out []string
	must(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		line := strings.TrimPrefix(path, root+"/")
		switch {
		case d.IsDir():
			line += "/"
		case d.Type()&fs.ModeSymlink != 0:
			to, _ := os.Readlink(path)
			line += "->" + to
		case d.Type().IsRegular():
			b, _ := os.ReadFile(path)
			line += "=" + string(b)
		}
		out = append(out, line)
		return nil
	}))
	return strings.Join(out, " ")
}

func TestLayersAreStacked(t *testing.T) {
	for name, c := range map[string]struct {
		layers [][]byte
		want   string
	}{
		"a file replaces a file": {
			[][]byte{archive(t, file("a", "1")), archive(t, file("a", "2"))}, "a=2",
		},
		"a file replaces a directory, and the reverse": {
			[][]byte{archive(t, file("d/x", "1"), file("f", "1")), archive(t, file("d", "2"), file("f/x", "2"))}, "",
		},
		"a directory keeps what it holds": {
			[][]byte{archive(t, dir("d"), file("d/x", "1")), archive(t, dir("d"), file("d/y", "2"))}, "d/ d/x=1 d/y=2",
		},
		"whiteouts": {
			[][]byte{archive(t, file("a", "1"), file("d/x", "1"), file("d/sub/y", "1")),
				archive(t, file(".wh.a", ""), file("d/.wh.sub", ""))},
			"d/ d/x=1",
		},
		"an opaque directory": {
			[][]byte{archive(t, file("d/x", "1"), file("d/sub/y", "1")),
				archive(t, file("d/new", "2"), file("d/.wh..wh..opq", ""), file("d/later", "2"))},
			"d/ d/later=2 d/new=2",
		},
		"whiteouts of nothing": {
			[][]byte{archive(t, file(".wh.none", ""), file("d/.wh..", ""), file("e/.wh...", ""), file(".wh.", ""))},
			"d/ e/",
		},
		"hard links": {
			[][]byte{archive(t, file("a", "1"), tar.Header{Typeflag: tar.TypeLink, Name: "d/b", Linkname: "/a"})},
			"a=1 d/ d/b=1",
		},
		"links on the way": {
			[][]byte{archive(t, dir("usr/lib"), link("lib", "usr/lib")),
				archive(t, file("lib/x", "1"), file("/abs/../up", "2"))},
			"lib->usr/lib up=2 usr/ usr/lib/ usr/lib/x=1",
		},
		"links out": {
			[][]byte{archive(t, link("out", "/../../.."), link("etc", "/etc")),
				archive(t, file("out/x", "1"), file("etc/y", "1"))}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.want == "" { // what matters is that nothing is written elsewhere, and that it ends
				img := empty.Image
				for _, l := range c.layers {
					var err error
					img, err = mutate.AppendLayers(img, static.NewLayer(l, types.OCIUncompressedLayer))
					must(t, err)
				}
				outer := t.TempDir()
				root := outer + "/root"
				must(t, os.Mkdir(root, 0o755))
				_ = Unpack(t.Context(), img, root, OnDisk, func(int64) {})
				if names, _ := filepath.Glob(outer + "/*"); !slices.Equal(names, []string{root}) {
					t.Errorf("written outside: %v", names)
				}
				return
			}
			if got := list(t, unpack(t, c.layers...)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestMetadata(t *testing.T) {
	root := unpack(t, archive(t,
		tar.Header{Typeflag: tar.TypeReg, Name: "ping", Mode: 0o4755, Uid: 7, Gid: 8, Format: tar.FormatPAX,
			PAXRecords: map[string]string{"SCHILY.xattr.user.note": "hello"}},
		tar.Header{Typeflag: tar.TypeChar, Name: "null", Mode: 0o666, Devmajor: 1, Devminor: 3},
		tar.Header{Typeflag: tar.TypeFifo, Name: "pipe", Mode: 0o600},
	))
	var st unix.Stat_t
	must(t, unix.Lstat(root+"/ping", &st))
	if st.Mode&0o7777 != 0o4755 || st.Uid != 7 || st.Gid != 8 {
		t.Errorf("ping: mode %o, owner %d:%d (requires root)", st.Mode, st.Uid, st.Gid)
	}
	b := make([]byte, 10)
	if n, err := unix.Getxattr(root+"/ping", "user.note", b); err != nil || string(b[:n]) != "hello" {
		t.Errorf("attribute: %q, %v", b[:max(n, 0)], err)
	}
	must(t, unix.Lstat(root+"/null", &st))
	if st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != unix.Mkdev(1, 3) {
		t.Errorf("null: %o %x", st.Mode, st.Rdev)
	}
	must(t, unix.Lstat(root+"/pipe", &st))
	if st.Mode&unix.S_IFMT != unix.S_IFIFO {
		t.Errorf("pipe: %o", st.Mode)
	}
}

func TestUnpackRefuses(t *testing.T) {
	img, err := mutate.AppendLayers(empty.Image, static.NewLayer([]byte(strings.Repeat("junk", 1000)),
		types.OCIUncompressedLayer))
	must(t, err)
	if err := Unpack(t.Context(), img, t.TempDir(), OnDisk, func(int64) {}); !errors.Is(err, trivet.ErrInvalid) {
		t.Errorf("junk: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	good, err := mutate.AppendLayers(empty.Image, static.NewLayer(archive(t, file("a", "1")),
		types.OCIUncompressedLayer))
	must(t, err)
	if err := Unpack(ctx, good, t.TempDir(), OnDisk, func(int64) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestProcessOf(t *testing.T) {
	root := unpack(t, archive(t, file("etc/passwd", "app:x:10:20::/:/x\n"), file("etc/group", "ops:x:30:\n")))
	of := func(c v1.Config) v1.Image {
		img, err := mutate.Config(empty.Image, c)
		must(t, err)
		return img
	}
	whole := v1.Config{Entrypoint: []string{"e"}, Cmd: []string{"c"}, User: "app:ops", Env: []string{"A=1"},
		WorkingDir: "/w"}
	for _, c := range []struct {
		command, args []string
		want          string
	}{
		{nil, nil, "e c"}, {nil, []string{"x"}, "e x"}, {[]string{"n"}, nil, "n"},
		{[]string{"n"}, []string{"x"}, "n x"},
	} {
		p, err := ProcessOf(of(whole), root, c.command, c.args)
		must(t, err)
		if got := strings.Join(p.Args, " "); got != c.want || p.UID != 10 || p.GID != 30 || p.Dir != "/w" {
			t.Errorf("%v %v: %+v", c.command, c.args, p)
		}
	}
	if _, err := ProcessOf(of(v1.Config{}), root, nil, nil); !errors.Is(err, trivet.ErrInvalid) {
		t.Errorf("nothing to run: %v", err)
	}
	if _, err := ProcessOf(of(v1.Config{Cmd: []string{"c"}, User: "none"}), root, nil,
		nil); !errors.Is(err, trivet.ErrInvalid) {
		t.Errorf("a user that does not exist: %v", err)
	}
}

// small is the space of the fuzz target: what it finds needs no more.
var small = Space{Bytes: 16 << 20, Entries: 1000}

// No archive can write outside its directory.
func FuzzUntar(f *testing.F) {
	f.Add(archive(f, file("a", "1"), dir("d"), link("l", "/../.."), file("l/x", "2")), true)
	f.Add(archive(f, file("../../x", "1"), file("d/.wh..wh..opq", ""), file(".wh.d", "")), false)
	f.Add(archive(f, tar.Header{Typeflag: tar.TypeLink, Name: "h", Linkname: "../../../etc/passwd"}), true)
	f.Fuzz(func(t *testing.T, b []byte, isLayer bool) {
		outer := t.TempDir()
		root := outer + "/a/root"
		must(t, os.MkdirAll(root, 0o755))
		if isLayer {
			img, err := mutate.AppendLayers(empty.Image, static.NewLayer(b, types.OCIUncompressedLayer))
			if err != nil {
				return
			}
			_ = Unpack(t.Context(), img, root, small, func(int64) {})
		} else {
			_ = Untar(bytes.NewReader(b), root, "/into", small)
		}
		for _, dir := range []string{outer, outer + "/a"} {
			if names, _ := os.ReadDir(dir); len(names) != 1 {
				t.Fatalf("written outside: %v", names)
			}
		}
	})
}

// An image that unpacks to more than there is space for is refused before it has used much more: by the bytes of its
// files, by holes of sparse files, by their number, over all layers together.
func TestBombs(t *testing.T) {
	many := make([]tar.Header, 0, 2000)
	for i := range 2000 {
		many = append(many, dir(fmt.Sprint("d", i)))
	}
	half := archive(t, file("a", strings.Repeat("x", 600<<10)))
	for name, c := range map[string]struct {
		layers [][]byte
		space  Space
	}{
		"bytes":      {[][]byte{archive(t, file("a", strings.Repeat("x", 2<<20)))}, Space{1 << 20, 100}},
		"two layers": {[][]byte{half, half}, Space{1 << 20, 100}},
		"files":      {[][]byte{archive(t, many...)}, Space{1 << 30, 1000}},
		"inodes":     {[][]byte{archive(t, many...)}, Space{1 << 20, 1 << 20}},
		"holes":      {[][]byte{sparse}, Space{1 << 20, 100}},
	} {
		img := empty.Image
		for _, l := range c.layers {
			var err error
			img, err = mutate.AppendLayers(img, static.NewLayer(l, types.OCIUncompressedLayer))
			must(t, err)
		}
		root := t.TempDir()
		if err := Unpack(t.Context(), img, root, c.space, func(int64) {}); !errors.Is(err, ErrBomb) {
			t.Errorf("%s: %v", name, err)
		}
		var used int64
		must(t, filepath.WalkDir(root, func(_ string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			info, err := d.Info()
			used += info.Size()
			return err
		}))
		if used > c.space.Bytes+1 {
			t.Errorf("%s: %d bytes are used", name, used)
		}
	}
}

// sparse is an archive of one file of 4 GiB without data, as GNU tar writes it.
var sparse = func() []byte {
	b := make([]byte, 3*512) // a header, and the archive's end
	octal := func(at, digits int, n int64) { copy(b[at:], fmt.Sprintf("%0*o\x00", digits, n)) }
	copy(b, "a")
	octal(100, 7, 0o644)
	octal(108, 7, 0)
	octal(116, 7, 0)
	octal(124, 11, 0) // bytes of data
	octal(136, 11, 0)
	b[156] = tar.TypeGNUSparse
	copy(b[257:], "ustar  \x00")
	octal(386, 11, 4<<30) // the only part: of no bytes, at the end
	octal(398, 11, 0)
	octal(483, 11, 4<<30) // the size of the file
	copy(b[148:], "        ")
	sum := int64(0)
	for _, c := range b[:512] {
		sum += int64(c)
	}
	octal(148, 6, sum)
	return b
}()
