package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/keyring"
)

// Every value is encrypted and authenticated with a key that full heads have and witnesses do not, so that a witness
// can neither read a record nor write one. A value is valid in one place only: as write number N of one key since that
// was created at a revision. A transaction compares the revision of each key that it puts, so it knows the place. So an
// older value of the same key is refused, too, with one exception: after a deletion, the first value.
//
// The text that is encrypted is the transaction's ID, and the record's JSON, packed (see pack.go). Between them are,
// each after a byte that no packed text begins with: in a value that was resealed, which is encrypted again under
// another key, the revision of the record's last change; in one of a record whose spec is apart, where that is (see
// apart.go).

// txID is the ID of a transaction: random, unique.
type txID [16]byte

// value is what a stored value contains.
type value struct {
	doc     []byte
	packed  []byte // doc as it is stored, where that was read
	tx      txID
	key     keyring.ID // it was sealed with
	changed int64      // the revision of the last change, if it was resealed since; 0: that of the value
	spec    specRef
}

// What begins the parts of the text before the JSON, unlike packedPlain and packedS2, and the size of these parts.
const (
	resealMark = 2
	resealSize = 1 + 8
	specMark   = 3
	specSize   = 1 + 16 + 4
)

// text returns what is encrypted, and where in it the packed JSON begins.
func (v *value) text() (text []byte, at int) {
	text = append(make([]byte, 0, len(v.tx)+resealSize+specSize+maxPacked(v.doc)), v.tx[:]...)
	if v.changed != 0 {
		text = binary.BigEndian.AppendUint64(append(text, resealMark), uint64(v.changed))
	}
	if v.spec.apart() {
		text = append(append(text, specMark), v.spec.tx[:]...)
		text = binary.BigEndian.AppendUint32(text, uint32(v.spec.at))
	}
	return appendPacked(text, v.doc), len(text)
}

// parse reads the text.
func (v *value) parse(text []byte) (err error) {
	if len(text) < len(v.tx) {
		return ErrRefused
	}
	v.tx, text = txID(text), text[len(v.tx):]
	if len(text) >= resealSize && text[0] == resealMark {
		v.changed, text = int64(binary.BigEndian.Uint64(text[1:])), text[resealSize:]
	}
	if len(text) >= specSize && text[0] == specMark {
		v.spec = specRef{tx: txID(text[1:]), at: int(binary.BigEndian.Uint32(text[1+len(v.tx):]))}
		text = text[specSize:]
	}
	if v.doc, v.packed, err = unpackKept(text); err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return nil
}

// ErrRefused means that a stored value was not written by a head of this cluster for this place: it was forged,
// replayed, or changed on this head's disk.
var ErrRefused = fmt.Errorf("%w: the stored value does not authenticate", trivet.ErrInvalid)

// errNoKey is the ErrRefused of a value under a key that this head does not have.
var errNoKey = fmt.Errorf("%w: %w", ErrRefused, keyring.ErrKey)

const hintRefused = "see what the other heads have: trivet head list; if only this one's copy is damaged, replace " +
	"the head; else delete the record and create it again"

// isBound reports whether the values of a key are bound to what they replace. Three kinds of internal keys, which hold
// nothing, are not: they are written without a compare.
func isBound(key string) bool {
	for _, part := range []string{guardPart, idPart, listPart} {
		if strings.HasPrefix(key, prefix+part) {
			return false
		}
	}
	return true
}

// place is where a value is valid. A key that is written without a compare has one place.
func (s *Store) place(key string, created, version int64) []byte {
	data := make([]byte, 16, 16+len(key))
	if isBound(key) && !s.defects.noCompare {
		if version == 1 {
			created = 0 // not known when the value was written
		}
		binary.BigEndian.PutUint64(data, uint64(created))
		binary.BigEndian.PutUint64(data[8:], uint64(version))
	}
	return append(data, key...)
}

// seal returns the stored value of a key whose present entry is was; nil: it has none. with is the key that encrypts. It
// sets v.packed, as if the value had been read.
func (s *Store) seal(with keyring.ID, key string, was *entry, v *value) (string, error) {
	created, version := int64(0), int64(1)
	if was != nil {
		created, version = was.created, was.version+1
	}
	text, at := v.text()
	if text[at] != packedPlain {
		v.packed = slices.Clone(text[at:])
	}
	return s.encrypt(with, text, s.place(key, created, version))
}

// encrypt encrypts a text for a place.
func (s *Store) encrypt(with keyring.ID, plain, place []byte) (string, error) {
	box, err := s.opts.Cipher.SealWith(with, plain, place)
	if err != nil {
		return "", errLacksKey(with)
	}
	return string(box), nil
}

// open reads a stored value. Errors: ErrRefused, which is shared: there may be many.
func (s *Store) open(key string, kv *mvccpb.KeyValue) (v value, err error) {
	plain, id, err := s.opts.Cipher.Open(kv.Value, s.place(key, kv.CreateRevision, kv.Version))
	switch {
	case errors.Is(err, keyring.ErrKey):
		return value{key: id}, errNoKey
	case err != nil:
		return v, ErrRefused
	}
	v.key = id
	return v, v.parse(plain)
}
