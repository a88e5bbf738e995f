package image

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// xzGuard forwards an xz file and fails if a block requests more memory than maxWindow: the library would allocate up
// to 4 GiB for a file of a few bytes. It walks the parts of the format (The .xz File Format 1.2.1) without decoding
// them.
type xzGuard struct {
	in    *bufio.Reader
	part  func() (int64, error) // parses the next part and returns its length
	left  int64                 // of the previous part
	check int64                 // bytes of a block's check in this stream
	size  int64                 // of the block's data so far
	count uint64                // numbers that remain in the index
}

var (
	errXZ     = errors.New("it is damaged")
	errXZSize = fmt.Errorf("it needs more than %d MiB of memory; compress it by 'xz -9' or 'zstd -19' at most",
		maxWindow>>20)
)

func newXZGuard(in *bufio.Reader) *xzGuard {
	g := &xzGuard{in: in}
	g.part = g.stream
	return g
}

func (g *xzGuard) Read(p []byte) (int, error) {
	for g.left == 0 {
		n, err := g.part()
		if err != nil {
			return 0, err
		}
		g.left = n
	}
	n, err := g.in.Read(p[:min(int64(len(p)), g.left)])
	g.left -= int64(n)
	if err == io.EOF && g.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// peek returns the next n bytes; fewer are an unexpected end.
func (g *xzGuard) peek(n int) ([]byte, error) {
	b, err := g.in.Peek(n)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return b, err
}

// stream is its header, or padding after the last one (sections 2.1.1 and 2.2).
func (g *xzGuard) stream() (int64, error) {
	if _, err := g.in.Peek(1); err != nil {
		return 0, err // the end
	}
	b, err := g.peek(4)
	if err == nil && binary.LittleEndian.Uint32(b) == 0 {
		return 4, nil
	}
	if b, err = g.peek(12); err != nil {
		return 0, err
	}
	sizes := []int64{0, 4, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64, 64, 64} // section 2.1.1.2
	g.check = sizes[b[7]&0xf]
	g.part = g.block
	return 12, nil
}

// block is a block's header, or the index after the last block (sections 3.1 and 4.1).
func (g *xzGuard) block() (int64, error) {
	b, err := g.peek(1)
	if err != nil {
		return 0, err
	}
	if b[0] == 0 {
		g.size, g.part = 0, g.indexCount
		return g.skip(1)
	}
	if b, err = g.peek((int(b[0]) + 1) * 4); err != nil {
		return 0, err
	}
	window, err := windowOf(b)
	if err != nil {
		return 0, err
	}
	if window > maxWindow {
		return 0, errXZSize
	}
	g.size, g.part = 0, g.chunk
	return int64(len(b)), nil
}

// windowOf returns the memory that a block's header requests (sections 3.1.2 to 3.1.5 and 5.3.1). The library supports
// LZMA2 only.
func windowOf(header []byte) (int64, error) {
	flags, b := header[1], header[2:]
	for _, has := range []byte{0x40, 0x80} { // sizes of the block
		if flags&has == 0 {
			continue
		}
		_, n := binary.Uvarint(b)
		if n <= 0 {
			return 0, errXZ
		}
		b = b[n:]
	}
	if flags&3 != 0 || len(b) < 3 || b[0] != 0x21 || b[1] != 1 || b[2] > 40 {
		return 0, errors.New("it uses filters that are not known; compress it by plain 'xz' or by zstd")
	}
	return (2 | int64(b[2]&1)) << (b[2]/2 + 11), nil
}

// chunk is one of LZMA2: a control byte, sizes, data; a zero ends the block, which is padded and followed by its
// check.
func (g *xzGuard) chunk() (int64, error) {
	b, err := g.peek(1)
	if err != nil {
		return 0, err
	}
	switch control := b[0]; {
	case control == 0:
		g.part = g.block
		end := g.size + 1
		return 1 + (4-end%4)%4 + g.check, nil
	case control <= 2: // not compressed
		if b, err = g.peek(3); err != nil {
			return 0, err
		}
		return g.skip(3 + int64(binary.BigEndian.Uint16(b[1:])) + 1)
	case control >= 0x80:
		if b, err = g.peek(5); err != nil {
			return 0, err
		}
		header := int64(5)
		if control >= 0xc0 { // with new properties
			header++
		}
		return g.skip(header + int64(binary.BigEndian.Uint16(b[3:])) + 1)
	}
	return 0, errXZ
}

func (g *xzGuard) skip(n int64) (int64, error) {
	g.size += n
	return n, nil
}

// indexCount and indexNumber are the index: how many records, then two numbers for each (section 4).
func (g *xzGuard) indexCount() (int64, error) {
	records, n, err := g.number()
	if err != nil || records > 1<<40 {
		return 0, errors.Join(errXZ, err)
	}
	g.count, g.part = 2*records, g.indexNumber
	return g.skip(n)
}

func (g *xzGuard) indexNumber() (int64, error) {
	if g.count == 0 { // padding, check and the stream's footer
		g.part = g.stream
		return (4-g.size%4)%4 + 4 + 12, nil
	}
	g.count--
	_, n, err := g.number()
	if err != nil {
		return 0, err
	}
	return g.skip(n)
}

func (g *xzGuard) number() (value uint64, length int64, err error) {
	b, err := g.in.Peek(9) // fewer at the end are enough for shorter numbers
	value, n := binary.Uvarint(b)
	if n <= 0 {
		if err == nil || errors.Is(err, io.EOF) {
			err = errXZ
		}
		return 0, 0, err
	}
	return value, int64(n), nil
}
