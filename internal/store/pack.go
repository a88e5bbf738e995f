package store

import (
	"errors"

	"github.com/klauspost/compress/s2"
)

// A document is packed before it is encrypted: most of a record is names of fields, which compress well, and a run
// writes its status a dozen times. S2 costs less than the copies, hashes and writes of the bytes that it saves.

// The first byte of a packed document is its form.
const (
	packedPlain = 0
	packedS2    = 1
)

// maxUnpacked is more than any document has. Values are authenticated, so it bounds mistakes only.
const maxUnpacked = 16 << 20

// appendPacked appends a document to dst, whichever of its forms is shorter.
func appendPacked(dst, doc []byte) []byte {
	free := dst[len(dst)+1 : cap(dst)]
	if packed := s2.Encode(free, doc); len(packed) < len(doc) {
		return append(append(dst, packedS2), packed...)
	}
	return append(append(dst, packedPlain), doc...)
}

// maxPacked returns how much space appendPacked needs.
func maxPacked(doc []byte) int { return 1 + s2.MaxEncodedLen(len(doc)) }

var errPacked = errors.New("it is packed in a form that this version does not know")

// unpackKept returns a packed document, and what is kept of it instead, where that is smaller; else nil.
func unpackKept(text []byte) (doc, packed []byte, err error) {
	if doc, err = unpack(text); err == nil && text[0] != packedPlain {
		packed = text
	}
	return doc, packed, err
}

// unpack returns a packed document.
func unpack(packed []byte) ([]byte, error) {
	if len(packed) == 0 {
		return nil, errPacked
	}
	body := packed[1:]
	switch packed[0] {
	case packedPlain:
		return body, nil
	case packedS2:
		if n, err := s2.DecodedLen(body); err != nil || n > maxUnpacked {
			return nil, errPacked
		}
		return s2.Decode(nil, body)
	}
	return nil, errPacked
}
