package docker

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/trivet-project/trivet"
)

func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// entry is a file of an archive, or a link.
type entry struct{ name, content, link string }

func archiveOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: 0o644, Size: int64(len(e.content)), Typeflag: tar.TypeReg}
		if e.link != "" {
			h.Typeflag, h.Linkname = tar.TypeSymlink, e.link
		}
		must(t, w.WriteHeader(h))
		_, err := io.WriteString(w, e.content)
		must(t, err)
	}
	must(t, w.Close())
	return b.Bytes()
}

// saved returns what docker save wrote before Docker 25: two layers, the second one of which occurs again, as a link.
func saved(t testing.TB) []byte {
	t.Helper()
	first := string(archiveOf(t, entry{name: "etc/hostname", content: "a"}))
	second := string(archiveOf(t, entry{name: "etc/motd", content: strings.Repeat("b", 1000)}))
	digest := func(s string) string {
		h, _, err := v1.SHA256(strings.NewReader(s))
		must(t, err)
		return h.String()
	}
	config := fmt.Sprintf(`{"architecture":"arm64","os":"linux","config":{"Cmd":["/bin/sh"]},`+
		`"rootfs":{"type":"layers","diff_ids":[%q,%q,%q]}}`, digest(first), digest(second), digest(second))
	id := func(c string) string { return strings.Repeat(c, 64) }
	manifest := fmt.Sprintf(`[{"Config":"%s.json","RepoTags":["a:1"],"Layers":["%s/layer.tar","%s/layer.tar",`+
		`"%s/layer.tar"]}]`, id("c"), id("1"), id("2"), id("3"))
	return archiveOf(t, entry{name: id("1") + "/VERSION", content: "1.0"},
		entry{name: id("1") + "/layer.tar", content: first}, entry{name: id("2") + "/layer.tar", content: second},
		entry{name: id("3") + "/layer.tar", link: "../" + id("2") + "/layer.tar"},
		entry{name: id("c") + ".json", content: config}, entry{name: "manifest.json", content: manifest},
		entry{name: "repositories", content: "{}"})
}

// written returns an archive that the library writes, with compressed layers.
func written(t testing.TB, images int) []byte {
	t.Helper()
	all := map[name.Reference]v1.Image{}
	for i := range images {
		img, err := random.Image(10_000, 3)
		must(t, err)
		tag, err := name.NewTag(fmt.Sprintf("a:%d", i))
		must(t, err)
		all[tag] = img
	}
	var b bytes.Buffer
	must(t, tarball.MultiRefWrite(all, &b))
	return b.Bytes()
}

// imageIn returns the only image of a tar of a layout, unpacked.
func imageIn(t *testing.T, r io.Reader) (v1.Image, *v1.Platform) {
	t.Helper()
	dir := t.TempDir()
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		path := filepath.Join(dir, filepath.Clean("/"+h.Name))
		content, err := io.ReadAll(in)
		must(t, err, os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, content, 0o600))
	}
	index, err := layout.ImageIndexFromPath(dir)
	must(t, err)
	m, err := index.IndexManifest()
	must(t, err)
	if len(m.Manifests) != 1 {
		t.Fatalf("%d images", len(m.Manifests))
	}
	img, err := index.Image(m.Manifests[0].Digest)
	must(t, err)
	return img, m.Manifests[0].Platform
}

// The layout of an archive has the same image, and all its digests are right.
func TestLayout(t *testing.T) {
	for what, c := range map[string]struct {
		file   []byte
		arch   string
		layers int
	}{
		"docker save": {saved(t), "arm64", 3},
		"compressed":  {written(t, 1), "", 3},
	} {
		a, err := Open(bytes.NewReader(c.file), int64(len(c.file)))
		must(t, err)
		r, err := a.Layout()
		must(t, err)
		img, platform := imageIn(t, r)
		arch := ""
		if platform != nil {
			arch = platform.Architecture
		}
		config, err := img.RawConfigFile()
		must(t, err)
		if n := verify(t, img); n != c.layers || !bytes.Contains(c.file, config) || arch != c.arch {
			t.Errorf("%s: %d layers for %q, %s", what, n, arch, config)
		}
	}
}

// verify compares the digests of an image's layers with what they are, as they are stored and unpacked. It returns
// their number.
func verify(t *testing.T, img v1.Image) int {
	t.Helper()
	layers, err := img.Layers()
	must(t, err)
	config, err := img.ConfigFile()
	must(t, err)
	for i, l := range layers {
		stored, err := l.Compressed()
		must(t, err)
		digest, _, err := v1.SHA256(stored)
		must(t, err)
		content, err := l.Uncompressed()
		must(t, err)
		diffID, _, err := v1.SHA256(content)
		must(t, err)
		if want, err := l.Digest(); err != nil || digest != want || diffID != config.RootFS.DiffIDs[i] {
			t.Errorf("layer %d is %v and %v, not %v and %v, %v", i, digest, diffID, want, config.RootFS.DiffIDs[i], err)
		}
	}
	return len(layers)
}

func TestRefused(t *testing.T) {
	file := saved(t)
	damaged := bytes.Replace(file, []byte("bbb"), []byte("bab"), 1)
	huge := strings.Repeat(" ", maxManifest+1)
	last := []byte(`,"` + strings.Repeat("3", 64) + `/layer.tar"`)
	fewer := bytes.Replace(file, last, bytes.Repeat([]byte(" "), len(last)), 1)
	for what, c := range map[string]struct {
		file []byte
		says string
	}{
		"two images":     {written(t, 2), "save one image"},
		"damaged":        {damaged, "layer 2: invalid: it is damaged"},
		"cut off":        {file[:2000], "cut off"},
		"no manifest":    {archiveOf(t, entry{name: "a.json", content: "{}"}), `lacks the file "manifest.json"`},
		"no layer":       {bytes.Replace(file, []byte(`/layer.tar"]`), []byte(`/later.tar"]`), 1), "lacks the file"},
		"a layer fewer":  {fewer, "it has 2 layers, and the digests of 3"},
		"huge manifest":  {archiveOf(t, entry{name: "manifest.json", content: huge}), "at most"},
		"link to itself": {archiveOf(t, entry{name: "manifest.json", link: "manifest.json"}), "lacks the file"},
		"not JSON":       {archiveOf(t, entry{name: "manifest.json", content: "["}), "manifest.json"},
	} {
		a, err := Open(bytes.NewReader(c.file), int64(len(c.file)))
		if err == nil {
			_, err = a.Layout()
		}
		if !errors.Is(err, trivet.ErrInvalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// FuzzLayout: whatever an archive has, it is a layout, or an error of the archive.
func FuzzLayout(f *testing.F) {
	f.Add(saved(f))
	f.Add(written(f, 1))
	f.Fuzz(func(t *testing.T, file []byte) {
		a, err := Open(bytes.NewReader(file), int64(len(file)))
		if err == nil {
			var r io.Reader
			if r, err = a.Layout(); err == nil {
				_, err = io.Copy(io.Discard, r)
			}
		}
		if err != nil && !errors.Is(err, trivet.ErrInvalid) {
			t.Errorf("not an ErrInvalid: %v", err)
		}
	})
}
