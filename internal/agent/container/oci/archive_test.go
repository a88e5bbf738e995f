package oci

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/random"

	"github.com/trivet-project/trivet"
)

// writtenLayout returns a directory with a layout of one image.
func writtenLayout(t *testing.T, arch string) string {
	t.Helper()
	dir := t.TempDir()
	l, err := layout.Write(dir, empty.Index)
	must(t, err)
	img, err := random.Image(10_000, 3)
	must(t, err)
	must(t, l.AppendImage(img, layout.WithPlatform(v1.Platform{OS: "linux", Architecture: arch})))
	return dir
}

// A layout that goes through a tar is the same.
func TestArchive(t *testing.T) {
	dir := writtenLayout(t, "arm64")
	must(t, os.WriteFile(filepath.Join(dir, "notes"), []byte("of no layout"), 0o600))
	for _, arch := range []string{"", "arm64"} {
		must(t, Check(dir, arch))
	}
	var tars [2]bytes.Buffer
	for i := range tars {
		content, err := Archive(dir)
		must(t, err)
		_, err = io.Copy(&tars[i], content)
		must(t, errors.Join(err, content.Close()))
	}
	if !bytes.Equal(tars[0].Bytes(), tars[1].Bytes()) {
		t.Error("two tars differ")
	}
	unpacked := t.TempDir()
	must(t, Untar(&tars[0], unpacked, "", OnDisk))
	must(t, os.Remove(filepath.Join(dir, "notes")))
	if got, want := list(t, unpacked), list(t, dir); got != want {
		t.Errorf("%s\nis not\n%s", got, want)
	}
	content, err := Archive(dir) // closed before its end
	must(t, err)
	must(t, content.Close())
}

func TestCheckRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		arch   string
		damage func(dir string, blobs []string) error
		says   string
	}{
		"no layout":          {"", func(dir string, _ []string) error { return os.Remove(dir + "/index.json") }, "OCI layout"},
		"other architecture": {"amd64", func(string, []string) error { return nil }, "no image for linux/amd64"},
		"no blobs":           {"", func(dir string, _ []string) error { return os.RemoveAll(dir + "/blobs") }, "no such file"},
		"a blob is cut off": {"", func(_ string, blobs []string) error {
			for _, b := range blobs {
				if info, err := os.Stat(b); err != nil || info.Size() > 9_000 {
					return errors.Join(err, os.Truncate(b, 10))
				}
			}
			return os.ErrNotExist
		}, "has 10 bytes, not"},
		"links": {"", func(dir string, blobs []string) (err error) { // the manifest is one of them
			for i, b := range blobs {
				elsewhere := fmt.Sprint(dir, "/elsewhere", i)
				err = errors.Join(err, os.Rename(b, elsewhere), os.Symlink(elsewhere, b))
			}
			return err
		}, "cp -rL"},
		"a link to all blobs": {"", func(dir string, _ []string) error {
			return errors.Join(os.Rename(dir+"/blobs", dir+"/elsewhere"), os.Symlink(dir+"/elsewhere", dir+"/blobs"))
		}, "cp -rL"},
	} {
		dir := writtenLayout(t, "arm64")
		blobs, err := filepath.Glob(dir + "/blobs/sha256/*")
		must(t, err)
		must(t, c.damage(dir, blobs))
		err = Check(dir, c.arch)
		if err == nil {
			_, err = Archive(dir)
		}
		if !errors.Is(err, trivet.ErrInvalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
