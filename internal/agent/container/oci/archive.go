package oci

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/trivet-project/trivet"
)

// The architectures of machines.
var architectures = []string{"amd64", "arm64"}

// Check verifies that a directory is an OCI layout with an image for machines of an architecture, any if it is empty,
// and that all its files are there.
func Check(dir, arch string) error {
	wanted := architectures
	if arch != "" {
		wanted = []string{arch}
	}
	var errs []error
	for _, arch := range wanted {
		img, err := layoutFor(dir, v1.Platform{OS: "linux", Architecture: arch})
		if err == nil {
			if _, err := layoutFiles(dir); err != nil { // before the manifest is read, which may be a link
				return err
			}
			return isWhole(dir, img)
		}
		errs = append(errs, err)
	}
	return errs[0]
}

// isWhole fails where a file of the image is missing, or has another size.
func isWhole(dir string, img v1.Image) error {
	manifest, err := img.Manifest()
	if err != nil {
		return fmt.Errorf("%w: manifest of the image: %w", trivet.ErrInvalid, err)
	}
	for _, d := range append(manifest.Layers, manifest.Config) {
		info, err := os.Stat(path.Join(dir, "blobs", d.Digest.Algorithm, d.Digest.Hex))
		if err != nil {
			return fmt.Errorf("%w: the layout lacks a file: %w", trivet.ErrInvalid, err)
		}
		if info.Size() != d.Size {
			return fmt.Errorf("%w: %s has %d bytes, not %d", trivet.ErrInvalid, d.Digest, info.Size(), d.Size)
		}
	}
	return nil
}

// Archive returns the layout of a directory as a tar, the same for the same files. Other files of the directory are
// left out. It must be closed.
func Archive(dir string) (io.ReadCloser, error) {
	names, err := layoutFiles(dir)
	if err != nil {
		return nil, err
	}
	out, in := io.Pipe()
	go func() { in.CloseWithError(writeLayout(in, dir, names)) }()
	return out, nil
}

// layoutFiles returns the files of a layout.
func layoutFiles(dir string) (names []string, err error) {
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !isOfLayout(name) {
			return err
		}
		info, err := d.Info()
		if err == nil && !info.Mode().IsRegular() {
			err = &trivet.Error{Op: "read the OCI layout", Err: fmt.Errorf("%w: %s is not a regular file",
				trivet.ErrInvalid, path.Join(dir, name)), Hint: "copy the directory by cp -rL, and import the copy"}
		}
		if err == nil {
			names = append(names, name)
		}
		return err
	})
	return names, err
}

// isOfLayout reports whether a layout may have a file of this name, or a link.
func isOfLayout(name string) bool {
	return name == "oci-layout" || name == "index.json" || name == "blobs" || strings.HasPrefix(name, "blobs/")
}

func writeLayout(out io.Writer, dir string, names []string) error {
	t := tar.NewWriter(out)
	for _, name := range names {
		if err := writeFile(t, dir, name); err != nil {
			return err
		}
	}
	return t.Close()
}

func writeFile(t *tar.Writer, dir, name string) (err error) {
	f, err := os.Open(path.Join(dir, name))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: info.Size()}); err != nil {
		return err
	}
	if _, err := io.Copy(t, f); err != nil {
		return fmt.Errorf("%s: %w", f.Name(), err)
	}
	return nil
}
