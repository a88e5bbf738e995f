package image

import (
	"context"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
)

// Target is what an image is written to: a disk, a partition, or a file as one.
type Target interface {
	io.WriterAt
	// Zero makes n bytes at off read as zeros. A target without such a command returns an error that
	// is [unix.EOPNOTSUPP] or [unix.EINVAL].
	Zero(off, n int64) error
	// Sync flushes writes to stable storage. It may be called while writes are under way.
	Sync() error
	Size() int64
}

// Options of Write.
type Options struct {
	RawBytes int64               // of the image; 0: not known
	Progress func(written int64) // called in order, after each few MiB, by another goroutine
}

// Result describes what was written.
type Result struct {
	Bytes int64 // of the image
	Zeros int64 // of these, zeroed by the target's own command
}

const (
	pieceBytes = 4 << 20 // read and written in one go
	pieces     = 4       // in transit at a time
)

// Write writes a raw image to the beginning of a target and flushes it. Zeros in the image are zeros on the target,
// whatever it held before, but are not sent to a target that can zero ranges itself.
//
// Before anything is written, an image is refused that is still compressed or of another format ([trivet.ErrInvalid]),
// or that is known to be larger than the target ([unix.ENOSPC]); an image that turns out to be larger is the latter as
// well, and one of another length than o.RawBytes the former. Errors of src and dst are returned unchanged. ctx is
// checked between reads and writes.
func Write(ctx context.Context, dst Target, src io.Reader, o Options) (Result, error) {
	if o.RawBytes > dst.Size() {
		return Result{}, tooSmall(o.RawBytes, dst)
	}
	if o.Progress == nil {
		o.Progress = func(int64) {}
	}
	w := newWriter(dst, o.Progress)
	free, full := make(chan []byte, pieces), make(chan []byte, pieces)
	for range pieces {
		free <- nil
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		w.run(full, free)
	}()
	size, err := fill(ctx, src, free, full, stopped)
	close(full)
	<-stopped
	if err == nil && o.RawBytes > 0 && size != o.RawBytes && w.err == nil {
		err = fmt.Errorf("%w: the image has %d bytes, not %d", trivet.ErrInvalid, size, o.RawBytes)
	}
	if w.err != nil {
		err = w.err
	}
	return w.done, err
}

func tooSmall(size int64, dst Target) error {
	return fmt.Errorf("the image has %d bytes or more and the target %d: %w", size, dst.Size(), unix.ENOSPC)
}

// fill reads pieces until src ends, or writing has stopped.
func fill(ctx context.Context, src io.Reader, free <-chan []byte, full chan<- []byte,
	stopped <-chan struct{}) (size int64, err error) {
	for {
		var b []byte
		select {
		case b = <-free:
		case <-stopped:
			return size, nil
		case <-ctx.Done():
			return size, context.Cause(ctx)
		}
		if b == nil {
			b = make([]byte, pieceBytes)
		}
		n, err := readFull(ctx, src, b)
		if err != nil && err != io.EOF {
			return size, err
		}
		if size == 0 {
			if err := check(b[:n]); err != nil {
				return 0, err
			}
		}
		size += int64(n)
		full <- b[:n] // has capacity for all pieces
		if err == io.EOF {
			return size, nil
		}
	}
}

// check refuses content that is not a raw image before it is written.
func check(head []byte) error {
	if len(head) == 0 {
		return fmt.Errorf("%w: the image is empty", trivet.ErrInvalid)
	}
	if c := compressionOf(head); c != None {
		return fmt.Errorf("%w: the image is compressed by %s and not described as such", trivet.ErrInvalid, c)
	}
	return refuse(head)
}

// readFull is io.ReadFull that returns io.EOF only at the end of the image, and other errors unchanged.
func readFull(ctx context.Context, r io.Reader, b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		if ctx.Err() != nil {
			return n, context.Cause(ctx)
		}
		var m int
		m, err = r.Read(b[n:])
		n += m
	}
	return n, err
}
