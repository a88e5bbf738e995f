package action

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/agent/container/oci"
	"github.com/trivet-project/trivet/internal/image"
)

// imageOf returns an image of the run, which must have the format that the action requires.
func imageOf(run *trivet.Run, name, format string) (trivet.ImageRef, error) {
	i := slices.IndexFunc(run.Spec.Images, func(i trivet.ImageRef) bool { return i.Name == name })
	if i < 0 {
		return trivet.ImageRef{}, finalf(trivet.FaultConfiguration, "the run has no image %q", name)
	}
	img := run.Spec.Images[i]
	if img.Format != format {
		return img, finalf(trivet.FaultConfiguration, "image %s is of format %s; this action requires %s", name,
			img.Format, format)
	}
	return img, nil
}

// stream is the content of an image: fetched, verified, decompressed.
type stream struct {
	io.ReadCloser
	blob io.ReadCloser
	name string
}

// fetchError is an error of the blob, as opposed to the decompressor's errors.
type fetchError struct{ error }

func (e fetchError) Unwrap() error { return e.error }

// open opens an image for reading. Progress is in bytes of the blob.
func (e *Env) open(ctx context.Context, at *Attempt, img trivet.ImageRef) (*stream, error) {
	blob, err := e.Fetch(ctx, at.Blobs(), img.Blob)
	if err != nil {
		return nil, Fault(trivet.FaultNetwork, fmt.Errorf("fetch image %s: %w", img.Name, err))
	}
	s := &stream{blob: blob, name: img.Name}
	var done int64
	source := readerFunc(func(b []byte) (int, error) {
		n, err := blob.Read(b)
		if err != nil && err != io.EOF {
			err = fetchError{err}
		}
		done += int64(n)
		at.Progress(done, img.Blob.Bytes, "bytes")
		return n, err
	})
	if s.ReadCloser, err = image.Decompress(source, img.Compression); err != nil {
		return nil, errors.Join(s.fault(ctx, err), blob.Close())
	}
	return s, nil
}

func (s *stream) Close() error {
	return errors.Join(s.blob.Close(), s.ReadCloser.Close()) // the decompressor may wait for the blob
}

// drain reads what follows the content, so that the whole blob is verified.
func (s *stream) drain() error {
	_, err := io.Copy(io.Discard, s)
	return err
}

// fault returns the failure of an error that occurred while the stream was copied to a disk or directory.
func (s *stream) fault(ctx context.Context, err error) error {
	var fetch fetchError
	isFetch := errors.As(err, &fetch)
	switch {
	case err == nil || isFailure(err):
		return err
	case ctx.Err() != nil: // its time is up while it waits for bytes
		return Fault(trivet.FaultNetwork, fmt.Errorf("image %s: %w", s.name, err))
	case isFetch && !errors.Is(err, trivet.ErrInvalid):
		return failf(trivet.FaultNetwork, "image %s: %w", s.name, err)
	case errors.Is(err, trivet.ErrInvalid):
		return finalf(trivet.FaultImage, "image %s: %w", s.name, err)
	case errors.Is(err, unix.ENOSPC):
		return finalf(trivet.FaultConfiguration, "image %s does not fit: %w", s.name, err)
	case isWrite(err):
		return failf(trivet.FaultMachine, "image %s: %w", s.name, err)
	}
	return finalf(trivet.FaultImage, "image %s: %w", s.name, err)
}

// isWrite reports whether an error is the kernel's: of the disk, not of the stream.
func isWrite(err error) bool {
	var errno unix.Errno
	return errors.As(err, &errno)
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// unpackImage unpacks an image that is a tar into a directory below root. Links on the way stay inside it.
func (e *Env) unpackImage(ctx context.Context, at *Attempt, name, format, root, path string) (err error) {
	img, err := imageOf(at.Run, name, format)
	if err != nil {
		return err
	}
	s, err := e.open(ctx, at, img)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := oci.Untar(s, root, path); err != nil {
		return s.fault(ctx, err)
	}
	return s.fault(ctx, s.drain())
}
