package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/image"
)

// maxSpool bounds a temporary file.
var maxSpool int64 = 256 << 30

// spool replaces an image by a temporary file with the decompressed content of src, which is read from its beginning.
// The file has no name, so that nothing is left behind.
func (a *app) spool(ctx context.Context, in *imageFile, src io.Reader, compression string) error {
	if compression == image.None && in.size > 0 {
		if err := hasSpace(in.size); err != nil {
			return fmt.Errorf("%s: %w", in.name, err)
		}
	}
	file, err := os.CreateTemp("", "trivet-image-")
	if err != nil {
		return err
	}
	if err := os.Remove(file.Name()); err != nil {
		return errors.Join(err, file.Close())
	}
	n, err := a.copyTo(ctx, file, in, src, compression)
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", in.name, err), file.Close())
	}
	err = in.Close()
	in.source, in.size, in.digest = file, n, nil
	return err
}

func (a *app) copyTo(ctx context.Context, file io.Writer, in *imageFile, src io.Reader,
	compression string) (int64, error) {
	if src == in.source {
		if _, err := in.Seek(0, io.SeekStart); err != nil {
			return 0, err
		}
	}
	m := a.transfer(in.record+": copy to "+os.TempDir(), in.size)
	defer m.end()
	src = &meteredReader{ctx, src, m, 0}
	if in.digest != nil {
		src = in.digest.Verify(src)
	}
	content, err := image.Decompress(src, compression)
	if err != nil {
		return 0, err
	}
	defer content.Close()
	n, err := io.Copy(file, io.LimitReader(content, maxSpool+1))
	switch {
	case errors.Is(err, unix.ENOSPC):
		return n, noSpace(n)
	case err == nil && n > maxSpool:
		return n, noSpace(maxSpool)
	}
	return n, err
}

// hasSpace fails where the directory for temporary files has fewer bytes.
func hasSpace(size int64) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(os.TempDir(), &fs); err == nil && uint64(size)/uint64(fs.Bsize) >= fs.Bavail || size > maxSpool {
		return noSpace(size)
	}
	return nil
}

func noSpace(size int64) error {
	return &trivet.Error{Op: "copy to " + os.TempDir(),
		Err:  fmt.Errorf("%w: there is no space for %s or more", trivet.ErrTooLarge, bytesText(size)),
		Hint: "set TMPDIR to a directory with more space, or import a file that is not compressed"}
}
