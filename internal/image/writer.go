package image

import (
	"bytes"
	"errors"

	"golang.org/x/sys/unix"
)

// writer writes pieces to the target, one after the other.
type writer struct {
	dst      Target
	progress func(int64)
	flush    *flusher

	at   int64 // of the next piece
	hole int64 // zeros that end at at and are not yet on the target
	done Result
	err  error
	cant bool // the target makes zeros by its own command
}

const (
	grain   = 1 << 20   // zeros are looked for in blocks of this size
	maxHole = 256 << 20 // zeroed in one call, which cannot be interrupted
)

var zeros [grain]byte

func newWriter(dst Target, progress func(int64)) *writer {
	return &writer{dst: dst, progress: progress}
}

// run writes until there are no more pieces or one fails, then flushes the target.
func (w *writer) run(full <-chan []byte, free chan<- []byte) {
	w.flush = newFlusher(w.dst)
	for b := range full {
		if w.err = w.piece(b); w.err != nil {
			break
		}
		w.done.Bytes = w.at
		w.progress(w.at)
		w.flush.wrote(int64(len(b)))
		free <- b[:cap(b)]
	}
	if w.err == nil {
		w.err = w.fillHole()
	}
	w.err = errors.Join(w.err, w.flush.close())
	if w.err == nil {
		w.err = w.dst.Sync()
	}
}

// piece writes the data of b that is not zero, in runs as long as possible.
func (w *writer) piece(b []byte) error {
	if w.at+int64(len(b)) > w.dst.Size() {
		return tooSmall(w.at+int64(len(b)), w.dst)
	}
	for len(b) > 0 {
		n := run(b)
		if isZero(b) {
			w.hole += int64(n)
		} else {
			if err := w.fillHole(); err != nil {
				return err
			}
			if _, err := w.dst.WriteAt(b[:n], w.at); err != nil {
				return err
			}
		}
		w.at += int64(n)
		if w.hole >= maxHole {
			if err := w.fillHole(); err != nil {
				return err
			}
		}
		b = b[n:]
	}
	return nil
}

// isZero reports whether b starts with a grain of zeros.
func isZero(b []byte) bool { return len(b) >= grain && bytes.Equal(b[:grain], zeros[:]) }

// run returns how many bytes at the start of b are all zero, in grains, or all to be written.
func run(b []byte) int {
	first := isZero(b)
	n := min(grain, len(b))
	for n < len(b) && isZero(b[n:]) == first {
		n += min(grain, len(b)-n)
	}
	return n
}

// fillHole writes the hole as zeros.
func (w *writer) fillHole() error {
	off, n := w.at-w.hole, w.hole
	w.hole = 0
	if n == 0 {
		return nil
	}
	if !w.cant {
		err := w.dst.Zero(off, n)
		if err == nil {
			w.done.Zeros += n
			return nil
		}
		if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOTTY) {
			return err
		}
		w.cant = true
	}
	for ; n > 0; n -= grain { // holes are whole grains
		if _, err := w.dst.WriteAt(zeros[:], off); err != nil {
			return err
		}
		off += grain
	}
	return nil
}
