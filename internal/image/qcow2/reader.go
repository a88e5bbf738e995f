package qcow2

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/zstd"
)

// Bits of the tables' entries.
const (
	offsetMask = 0x00fffffffffffe00
	compressed = 1 << 62
	zero       = 1
)

// Reader returns the content of the disk, from its beginning.
func (img *Image) Reader() io.Reader {
	return &reader{img: img, at: -1, l2: make([]byte, img.cluster()), l2At: -1}
}

type reader struct {
	img  *Image
	done int64 // bytes of the disk that were read

	at   int64  // of the disk's cluster that was unpacked last; -1: none
	data []byte // that cluster
	l2   []byte // a second table
	l2At int64  // where it is in the file; -1: none

	packed  []byte
	inflate io.ReadCloser
	zstd    *zstd.Decoder
}

// Read returns bytes of one cluster at most.
func (r *reader) Read(p []byte) (int, error) {
	if r.done == r.img.size {
		return 0, io.EOF
	}
	within := r.done % r.img.cluster()
	n := min(int64(len(p)), r.img.cluster()-within, r.img.size-r.done)
	if err := r.fill(p[:n], within); err != nil {
		return 0, fmt.Errorf("read qcow2 at %d: %w", r.done, err)
	}
	r.done += n
	return int(n), nil
}

// fill reads a part of the cluster at r.done.
func (r *reader) fill(p []byte, within int64) error {
	entry, err := r.entry()
	switch {
	case err != nil:
		return err
	case entry&compressed != 0:
		if err := r.unpack(entry); err != nil {
			return err
		}
		copy(p, r.data[within:])
		return nil
	case entry&zero != 0 && r.img.version == 2:
		return damaged("an entry has the bits %#x", entry)
	case entry&zero != 0, entry&offsetMask == 0:
		clear(p)
		return nil
	}
	at := int64(entry & offsetMask)
	if at%r.img.cluster() != 0 || !r.img.holds(at+within, int64(len(p))) {
		return damaged("the file is cut off: a cluster at %d, of %d bytes", at, r.img.file)
	}
	return r.img.readAt(p, at+within)
}

// entry returns the second table's entry for the cluster at r.done; 0 if there is no table.
func (r *reader) entry() (uint64, error) {
	n, perTable := r.done>>r.img.bits, r.img.cluster()/8
	table := int64(r.img.l1[n/perTable] & offsetMask)
	if table == 0 {
		return 0, nil
	}
	if table != r.l2At {
		if table%r.img.cluster() != 0 || !r.img.holds(table, r.img.cluster()) {
			return 0, damaged("the file is cut off: a table at %d, of %d bytes", table, r.img.file)
		}
		r.l2At = -1
		if err := r.img.readAt(r.l2, table); err != nil {
			return 0, err
		}
		r.l2At = table
	}
	return binary.BigEndian.Uint64(r.l2[n%perTable*8:]), nil
}

// unpack decompresses the cluster at r.done, unless that was done before.
func (r *reader) unpack(entry uint64) error {
	at := r.done &^ (r.img.cluster() - 1)
	if at == r.at {
		return nil
	}
	r.at = -1
	packed, err := r.packedCluster(entry)
	if err != nil {
		return err
	}
	content, err := r.decoder(packed)
	if err != nil {
		return err
	}
	if _, err := io.ReadFull(content, r.data); err != nil {
		return damaged("a compressed cluster: %v", err)
	}
	r.at = at
	return nil
}

// packedCluster reads a compressed cluster. Its length is known in sectors of 512 bytes, and it may end earlier.
func (r *reader) packedCluster(entry uint64) ([]byte, error) {
	offsetBits := 62 - (r.img.bits - 8)
	from, sectors := int64(entry&(1<<offsetBits-1)), int64(entry&(compressed-1))>>offsetBits
	n := min((sectors+1)*512-from%512, r.img.file-from)
	if n <= 0 || !r.img.holds(from, n) {
		return nil, damaged("the file is cut off: a compressed cluster at %d, of %d bytes", from, r.img.file)
	}
	if r.data == nil {
		r.data, r.packed = make([]byte, r.img.cluster()), make([]byte, 2*r.img.cluster())
	}
	packed := r.packed[:n]
	return packed, r.img.readAt(packed, from)
}

// maxWindow is of zstd: QEMU compresses clusters, of 2 MiB at most.
const maxWindow = 8 << 20

func (r *reader) decoder(packed []byte) (io.Reader, error) {
	src := bytes.NewReader(packed)
	if !r.img.zstd {
		if r.inflate == nil {
			r.inflate = flate.NewReader(src)
			return r.inflate, nil
		}
		return r.inflate, r.inflate.(flate.Resetter).Reset(src, nil)
	}
	if r.zstd == nil {
		var err error
		r.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, err
		}
	}
	if err := r.zstd.Reset(src); err != nil {
		return nil, damaged("a compressed cluster: %v", err)
	}
	return r.zstd, nil
}
