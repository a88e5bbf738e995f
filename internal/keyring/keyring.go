// Package keyring holds secret keys with IDs, and encrypts with them. A [Ring] is the keys of one purpose: the first is
// in use, and all others are accepted, so that a key can be replaced while what was made with it remains valid.
package keyring

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/trivet-project/trivet"
)

const (
	keySize = 32
	idSize  = 4
)

// MaxKeys bounds the keys of a ring.
const MaxKeys = 16

// ID identifies a key. It is derived from the key and public.
type ID [idSize]byte

func (id ID) String() string { return hex.EncodeToString(id[:]) }

// ParseID parses the text of an ID.
func ParseID(text string) (id ID, err error) {
	if n, err := hex.Decode(id[:], []byte(text[:min(len(text), 2*idSize)])); err != nil || n != idSize ||
		len(text) != 2*idSize {
		return ID{}, fmt.Errorf("%w: %.20q is not the ID of a key, %d hex digits", trivet.ErrInvalid, text, 2*idSize)
	}
	return id, nil
}

// Key is one secret key.
type Key struct{ secret [keySize]byte }

// New returns a new key.
func New() (k Key) {
	rand.Read(k.secret[:]) // never fails: crypto/rand aborts the program instead
	return k
}

// ID returns the key's ID.
func (k *Key) ID() (id ID) {
	sum := sha256.Sum256(append([]byte("trivet key id\n"), k.secret[:]...))
	copy(id[:], sum[:])
	return id
}

// MAC returns the HMAC-SHA256 of a text.
func (k *Key) MAC(text string) []byte {
	mac := hmac.New(sha256.New, k.secret[:])
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

// Ring is the keys of one purpose, at least one. It is immutable.
type Ring struct{ keys []Key }

// Of returns a ring of keys, of which the first is in use.
func Of(first Key, others ...Key) Ring { return Ring{append([]Key{first}, others...)} }

// Parse reads a ring from text: one key a line, its ID and 64 hex digits.
func Parse(text []byte) (r Ring, err error) {
	for line := range bytes.Lines(text) {
		id, digits, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		var k Key
		n, err := hex.Decode(k.secret[:], bytes.TrimSpace(digits[:min(len(digits), 2*keySize)]))
		if err != nil || n != keySize || len(digits) != 2*keySize {
			return Ring{}, fmt.Errorf("%w: line %d is not the ID of a key and 64 hex digits", trivet.ErrInvalid,
				len(r.keys)+1)
		}
		if string(id) != k.ID().String() {
			return Ring{}, fmt.Errorf("%w: line %d: the key is not that of its ID, %.16q", trivet.ErrInvalid,
				len(r.keys)+1, id)
		}
		if _, ok := r.Get(k.ID()); ok || len(r.keys) == MaxKeys {
			return Ring{}, fmt.Errorf("%w: a key occurs twice, or there are more than %d", trivet.ErrInvalid, MaxKeys)
		}
		r.keys = append(r.keys, k)
	}
	if len(r.keys) == 0 {
		return Ring{}, fmt.Errorf("%w: no key", trivet.ErrInvalid)
	}
	return r, nil
}

// Text returns what Parse reads. It is secret.
func (r Ring) Text() []byte {
	var b bytes.Buffer
	for i := range r.keys {
		fmt.Fprintf(&b, "%s %x\n", r.keys[i].ID(), r.keys[i].secret)
	}
	return b.Bytes()
}

// First returns the key that is in use.
func (r Ring) First() *Key { return &r.keys[0] }

// With returns the ring with other keys after its own, without those that it has.
func (r Ring) With(others ...Key) Ring {
	keys := slices.Clone(r.keys)
	for i := range others {
		if _, ok := (Ring{keys}).Get(others[i].ID()); !ok {
			keys = append(keys, others[i])
		}
	}
	return Ring{keys}
}

// Keep returns the ring with the key of an ID first. Of the others it has those that keep accepts; nil: all. It returns
// the ring itself where it does not have that key.
func (r Ring) Keep(first ID, keep func(ID) bool) Ring {
	key, ok := r.Get(first)
	if !ok {
		return r
	}
	kept := Of(*key)
	for _, k := range r.keys {
		if id := k.ID(); id != first && (keep == nil || keep(id)) {
			kept.keys = append(kept.keys, k)
		}
	}
	return kept
}

// Keys returns the keys in order.
func (r Ring) Keys() []Key { return slices.Clone(r.keys) }

// Get returns the key of an ID.
func (r Ring) Get(id ID) (*Key, bool) {
	i := slices.IndexFunc(r.keys, func(k Key) bool { return k.ID() == id })
	if i < 0 {
		return nil, false
	}
	return &r.keys[i], true
}

// IDs returns the IDs of the keys in order.
func (r Ring) IDs() (ids []string) {
	for i := range r.keys {
		ids = append(ids, r.keys[i].ID().String())
	}
	return ids
}
