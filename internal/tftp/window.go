package tftp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// readAhead is the size of one read of a file; any block fits.
const readAhead = 64 << 10

var buffers = sync.Pool{New: func() any { return new([headerSize + readAhead]byte) }}

// reader returns the DATA packets of a file's blocks. A packet is a slice of the buffer: its header overwrites the
// end of the previous block, which was sent. So reading forward copies nothing, and an earlier block is read again.
type reader struct {
	file  io.ReaderAt
	size  int64 // of the file
	block int64 // bytes in a block

	buf  *[headerSize + readAhead]byte
	from int64 // offset in the file of buf[headerSize]
	have int64 // bytes of the file in buf
	next int64 // the lowest offset whose bytes in buf are not overwritten
}

// packet returns the DATA packet of a block, counted from 1. It is valid until the next call.
func (r *reader) packet(block int64) ([]byte, error) {
	off := (block - 1) * r.block
	n := min(r.block, r.size-off)
	if off < r.next || off+n > r.from+r.have {
		if err := r.fill(off); err != nil {
			return nil, err
		}
	}
	at := off - r.from
	p := r.buf[at : at+headerSize+n]
	putHeader(p, opData, uint16(block))
	r.next = off
	return p, nil
}

// fill reads whole blocks from off.
func (r *reader) fill(off int64) error {
	want := min(readAhead/r.block*r.block, r.size-off)
	n, err := r.file.ReadAt(r.buf[headerSize:headerSize+want], off)
	if int64(n) < want {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("read at %d: %w", off, err)
	}
	r.from, r.have, r.next = off, want, off
	return nil
}

// send writes the blocks from..to, both included.
func (r *reader) send(conn *net.UDPConn, from, to int64) error {
	for block := from; block <= to; block++ {
		p, err := r.packet(block)
		if err != nil {
			return err
		}
		if _, err := conn.Write(p); err != nil {
			return err
		}
	}
	return nil
}
