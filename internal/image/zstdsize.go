package image

import (
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/trivet-project/trivet"
)

// maxFrames bounds how many frames and blocks are read for a file's size.
const maxFrames = 1 << 20

// zstdSize adds up the content sizes in a file's frame headers (RFC 8878, section 3.1.1); 0 if one has none.
func zstdSize(r io.ReaderAt, size int64) (total int64, err error) {
	steps := 0
	for at := int64(0); at < size; {
		var buf [zstd.HeaderMaxSize]byte
		n, err := r.ReadAt(buf[:], at)
		if err != nil && err != io.EOF {
			return 0, err
		}
		var h zstd.Header
		if err := h.Decode(buf[:n]); err != nil {
			return 0, fmt.Errorf("%w: a frame at %d: %w", trivet.ErrInvalid, at, err)
		}
		at += int64(h.HeaderSize)
		if h.Skippable {
			at += int64(h.SkippableSize)
		} else if !h.HasFCS || h.FrameContentSize > 1<<50 {
			return 0, nil
		} else {
			total += int64(h.FrameContentSize)
			if at, err = zstdBlocks(r, at, &steps); err != nil {
				return 0, err
			}
			if h.HasCheckSum {
				at += 4
			}
		}
		if steps++; steps > maxFrames {
			return 0, nil
		}
		if at > size {
			return 0, fmt.Errorf("%w: it is cut off at %d bytes", trivet.ErrInvalid, size)
		}
	}
	return total, nil
}

// zstdBlocks returns where a frame's blocks end (section 3.1.1.2).
func zstdBlocks(r io.ReaderAt, at int64, steps *int) (int64, error) {
	for {
		var b [3]byte
		if _, err := r.ReadAt(b[:], at); err == io.EOF {
			return 0, fmt.Errorf("%w: it is cut off at %d bytes", trivet.ErrInvalid, at)
		} else if err != nil {
			return 0, err
		}
		header := int64(b[0]) | int64(b[1])<<8 | int64(b[2])<<16
		isLast, kind, n := header&1 == 1, header>>1&3, header>>3
		if kind == 1 { // one byte, repeated
			n = 1
		}
		at += 3 + n
		if *steps++; isLast || *steps > maxFrames {
			return at, nil
		}
	}
}
