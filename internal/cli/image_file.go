package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/agent/container/oci"
	"github.com/trivet-project/trivet/internal/image"
)

// imageFile is an image to import, opened and inspected.
type imageFile struct {
	source
	name   string // of the file
	record string // the image's
	size   int64
	info   image.Info
	digest *image.Digest // nil: not known, or verified
	isDir  bool          // of an OCI layout; there is no source
}

// openImage opens an image. What is verified, or read in no order, is copied to a temporary file first, unless it is a
// file.
func (a *app) openImage(ctx context.Context, from string, f *importFlags) (in *imageFile, err error) {
	in = &imageFile{name: from, record: f.name}
	if f.digest != "" {
		if in.digest, err = image.ParseDigest(f.digest); err != nil {
			return nil, err
		}
	}
	err = a.openInput(ctx, in)
	if err == nil {
		err = a.prepare(ctx, in, f)
	}
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	return in, nil
}

// openInput opens a file, a directory, a URL or the standard input.
func (a *app) openInput(ctx context.Context, in *imageFile) (err error) {
	if info, err := os.Stat(in.name); err == nil && info.IsDir() {
		in.isDir = true
		return nil
	}
	if in.name != "-" {
		if in.source, in.size, err = openSource(ctx, in.name); err == nil && !in.hasRanges() {
			err = a.spool(ctx, in, in.source, image.None)
		}
		return err
	}
	in.name = "standard input"
	if f, ok := a.In.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			in.source, in.size = f, info.Size()
			return nil
		}
	}
	return a.spool(ctx, in, untilDone(ctx, a.In), image.None)
}

// untilDone returns r, of which reads that wait end with the context.
func untilDone(ctx context.Context, r io.Reader) io.Reader {
	out, in := io.Pipe()
	context.AfterFunc(ctx, func() { in.CloseWithError(context.Cause(ctx)) })
	go func() {
		_, err := io.Copy(in, r)
		in.CloseWithError(err)
	}()
	return out
}

// Close closes what is open.
func (in *imageFile) Close() error {
	if in.source == nil {
		return nil
	}
	return in.source.Close()
}

// prepare inspects the image.
func (a *app) prepare(ctx context.Context, in *imageFile, f *importFlags) error {
	if in.isDir {
		return in.inspectDir(f)
	}
	if err := in.inspect(f); err != nil {
		return err
	}
	compressed := in.info.AnyOrder() && in.info.Compression != image.None
	inOrder := in.info.Converts() && !in.info.AnyOrder() || !in.info.Converts() && in.headVerifies()
	switch {
	case compressed:
		if err := a.spool(ctx, in, in.source, in.info.Compression); err != nil {
			return err
		}
		return in.inspect(f)
	case inOrder:
		return nil
	case !in.isFile():
		return a.spool(ctx, in, in.source, image.None)
	case in.digest != nil:
		return a.verifyDigest(ctx, in)
	}
	return nil
}

// isFile reports whether the image can be read anywhere, at no cost.
func (in *imageFile) isFile() bool {
	_, remote := in.source.(*urlSource)
	return !remote
}

// hasRanges reports whether the image can be read anywhere.
func (in *imageFile) hasRanges() bool {
	u, remote := in.source.(*urlSource)
	return !remote || u.ranges && u.size > 0
}

// headVerifies reports whether the head verifies the digest.
func (in *imageFile) headVerifies() bool {
	return in.digest == nil || strings.HasPrefix(in.digest.String(), "sha256:")
}

// inspect looks at the image.
func (in *imageFile) inspect(f *importFlags) (err error) {
	if in.info, err = image.Inspect(in.source, in.size); err != nil {
		return fmt.Errorf("%s: %w", in.name, err)
	}
	return in.agree(f.format)
}

// inspectDir looks at a directory, which must be an OCI layout.
func (in *imageFile) inspectDir(f *importFlags) error {
	in.info = image.Info{Format: image.OCI, Within: "a directory"}
	if err := oci.Check(in.name, f.arch); err != nil {
		return &trivet.Error{Op: "import", Err: fmt.Errorf("%s is a directory: %w", in.name, err),
			Hint: "import a file, an OCI layout, or a file tree as an archive: tar -C " + in.name + " -cf tree.tar ."}
	}
	if in.digest != nil {
		return fmt.Errorf("%s: %w: a directory has no digest", in.name, trivet.ErrInvalid)
	}
	return in.agree(f.format)
}

// agree compares the format that was found with the one that was asked for.
func (in *imageFile) agree(format string) error {
	switch found := &in.info; {
	case format == "" || format == found.Format:
	case format == image.Tar && (found.Within == image.DiskRaw || found.Within == image.DockerArchive):
		found.Within, found.Format, found.RawBytes = "", image.Tar, 0
	case !in.isDir && format == image.Tar && found.Format == image.OCI,
		format == image.OCI && found.Format == image.Tar:
		found.Format = format
	default:
		return &trivet.Error{Op: "import", Err: fmt.Errorf("%w: %s is of format %s, not %s", trivet.ErrInvalid, in.name,
			found.Format, format), Hint: "without --format the format is detected"}
	}
	return nil
}

// verifyDigest reads a file for its digest.
func (a *app) verifyDigest(ctx context.Context, in *imageFile) error {
	m := a.transfer(in.record+": verify", in.size)
	defer m.end()
	whole := in.digest.Verify(io.NewSectionReader(in.source, 0, in.size))
	if _, err := io.Copy(io.Discard, &meteredReader{ctx, whole, m, 0}); err != nil {
		return fmt.Errorf("%s: %w", in.name, err)
	}
	in.digest = nil
	return nil
}

// meteredReader displays how much was read, and stops when its context ends.
type meteredReader struct {
	ctx  context.Context
	r    io.Reader
	m    *transfer
	done int64
}

func (r *meteredReader) Read(b []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	n, err := r.r.Read(b)
	r.done += int64(n)
	r.m.update(r.done)
	return n, err
}
