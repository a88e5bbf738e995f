package platform

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/trivet-project/trivet"
)

// A tree is the directory of an unpacked package. Its symbolic links are relative and stay inside it.
type tree string

// maxUnpacked bounds the size of an unpacked package. Debian's kernels have 0.4 GiB.
const maxUnpacked = 4 << 30

// unpack unpacks all packages into the cache. One that the cache has is recognized by its digest.
func (b *builder) unpack(ctx context.Context, packages []Package) error {
	for _, p := range packages {
		dir := filepath.Join(b.CacheDir, "unpacked", p.Name+"-"+p.SHA256[:16])
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			b.report("unpack %s", filepath.Base(p.path))
			if err := unpackDeb(ctx, p.path, dir); err != nil {
				return fmt.Errorf("unpack %s: %w", p.path, err)
			}
		}
		b.trees = append(b.trees, tree(dir))
	}
	return nil
}

// unpackDeb unpacks a package's files into dir, which exists only once it is complete.
func unpackDeb(ctx context.Context, debPath, dir string) error {
	f, err := os.Open(debPath)
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := debData(ctx, f)
	if err != nil {
		return err
	}
	defer data.Close()
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "new-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := untar(ctx, data, tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return err // another build may have created it
	}
	return nil
}

// debData returns the decompressed data.tar of a .deb, which is an ar archive (deb(5)).
func debData(ctx context.Context, r io.Reader) (io.ReadCloser, error) {
	magic := make([]byte, 8)
	if _, err := io.ReadFull(r, magic); err != nil || string(magic) != "!<arch>\n" {
		return nil, fmt.Errorf("%w: not a Debian package", trivet.ErrInvalid)
	}
	for range 16 { // a package has three members; a signed one a few more
		name, size, err := arHeader(r)
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(name, "data.tar") {
			return decompress(ctx, path.Ext(name), io.LimitReader(r, size))
		}
		if _, err := io.CopyN(io.Discard, r, size+size%2); err != nil {
			return nil, fmt.Errorf("%w: the package is truncated in %s", trivet.ErrInvalid, name)
		}
	}
	return nil, fmt.Errorf("%w: the package has no data.tar", trivet.ErrInvalid)
}

func arHeader(r io.Reader) (name string, size int64, err error) {
	h := make([]byte, 60)
	if _, err := io.ReadFull(r, h); err != nil {
		return "", 0, fmt.Errorf("%w: the package has no data.tar", trivet.ErrInvalid)
	}
	size, err = strconv.ParseInt(strings.TrimSpace(string(h[48:58])), 10, 64)
	if err != nil || size < 0 || string(h[58:]) != "`\n" {
		return "", 0, fmt.Errorf("%w: the package has an invalid member header", trivet.ErrInvalid)
	}
	return strings.TrimRight(string(h[:16]), " /"), size, nil
}

// decompress decompresses by the extension of the file name. Kernel modules use the same formats as packages.
func decompress(ctx context.Context, ext string, r io.Reader) (io.ReadCloser, error) {
	switch ext {
	case ".xz":
		return newXZ(ctx, r)
	case ".zst":
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", trivet.ErrInvalid, err)
		}
		return z.IOReadCloser(), nil
	case ".gz":
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", trivet.ErrInvalid, err)
		}
		return z, nil
	case ".tar", ".ko":
		return io.NopCloser(r), nil
	}
	return nil, fmt.Errorf("%w: unknown compression %q", trivet.ErrInvalid, ext)
}

// untar writes files, directories and symbolic links below dir. It ignores owners, devices and set-ID bits.
func untar(ctx context.Context, r io.Reader, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	t, left := tar.NewReader(io.LimitReader(r, maxUnpacked)), int64(maxUnpacked)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return ctx.Err()
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("%w: read data.tar: %w", trivet.ErrInvalid, err)
		}
		if left -= h.Size; left < 0 { // a sparse file is larger than its data in the archive
			return fmt.Errorf("%w: the unpacked package exceeds %d bytes", trivet.ErrTooLarge, int64(maxUnpacked))
		}
		if name := strings.TrimPrefix(path.Clean("/"+h.Name), "/"); name != "" && needed(name) {
			if err := untarOne(root, name, h, t); err != nil {
				return err
			}
		}
	}
}

// needed reports whether a file is unpacked. Documentation, a third of some packages, is not.
func needed(name string) bool {
	for _, dir := range []string{"usr/share/doc/", "usr/share/man/", "usr/share/locale/", "usr/lib/debug/"} {
		if strings.HasPrefix(name, dir) {
			return false
		}
	}
	return true
}

func untarOne(root *os.Root, name string, h *tar.Header, content io.Reader) error {
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, 0o755)
	case tar.TypeReg:
		f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, h.FileInfo().Mode().Perm()|0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, content)
		var disk *fs.PathError
		if err != nil && !errors.As(err, &disk) {
			err = fmt.Errorf("%w: read %s: %w", trivet.ErrInvalid, name, err)
		}
		return errors.Join(err, f.Close())
	case tar.TypeSymlink:
		return root.Symlink(relative(name, h.Linkname), name)
	case tar.TypeLink:
		return root.Link(strings.TrimPrefix(path.Clean("/"+h.Linkname), "/"), name)
	}
	return nil
}

// relative returns an absolute link's target relative to the link, so that it stays inside the tree.
func relative(name, target string) string {
	if !path.IsAbs(target) {
		return target
	}
	return strings.Repeat("../", strings.Count(name, "/")) + strings.TrimPrefix(path.Clean(target), "/")
}

// read reads a file of the tree, following links inside it.
func (t tree) read(name string) ([]byte, error) {
	root, err := os.OpenRoot(string(t))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.ReadFile(name)
}

// glob returns the paths in the tree that match a pattern.
func (t tree) glob(pattern string) []string {
	names, _ := fs.Glob(os.DirFS(string(t)), pattern) // the patterns are constants and valid
	return names
}
