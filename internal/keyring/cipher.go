package keyring

import (
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
)

// Cipher encrypts and authenticates texts with the keys of a ring, by XAES-256-GCM. It is safe for concurrent use. What
// Seal returns is:
//
//	format (1 byte, 1)  ID of the key (4)  nonce (24)  ciphertext  tag (16)
//
// The first half of a nonce is random for each process, and is replaced after some texts; the second half is random for
// each text. So the key that is derived from the first half is derived once, which costs five times as much as to
// encrypt a short text.
type Cipher struct {
	keys   atomic.Pointer[cipherKeys]
	mu     sync.Mutex
	prefix [half]byte // guarded by mu
	used   int        // texts sealed with prefix; guarded by mu
}

// cipherKeys is the keys of a ring, prepared for use.
type cipherKeys struct {
	first ID
	byID  map[ID]*cipherKey
}

const (
	format     = 1
	headerSize = 1 + idSize + nonceSize
	// Overhead is how many bytes longer a sealed text is.
	Overhead = headerSize + tagSize
	// perPrefix is how many texts have the same first half of the nonce.
	perPrefix = 1 << 20
)

// Errors of Open.
var (
	// ErrKey: the text was sealed with a key that the ring does not have.
	ErrKey = errors.New("sealed with a key that this head does not have")
	// ErrForged: the text was not sealed by the holder of a key, for this data.
	ErrForged = errors.New("does not authenticate")
)

// NewCipher returns a cipher of a ring's keys.
func NewCipher(r Ring) *Cipher {
	c := &Cipher{used: perPrefix}
	c.Use(r)
	return c
}

// Use replaces the keys. What was derived from those that stay is kept.
func (c *Cipher) Use(r Ring) {
	keys, was := &cipherKeys{first: r.First().ID(), byID: map[ID]*cipherKey{}}, c.keys.Load()
	for i := range r.keys {
		id := r.keys[i].ID()
		if was != nil && was.byID[id] != nil {
			keys.byID[id] = was.byID[id]
			continue
		}
		keys.byID[id] = &cipherKey{xaes: newXAES(&r.keys[i].secret)}
	}
	c.keys.Store(keys)
}

// First returns the ID of the key that Seal uses.
func (c *Cipher) First() ID { return c.keys.Load().first }

// Has reports whether the cipher has a key.
func (c *Cipher) Has(id ID) bool { return c.keys.Load().byID[id] != nil }

// Seal encrypts a text with the first key. It can be opened only with the same data.
func (c *Cipher) Seal(plain, data []byte) []byte {
	keys := c.keys.Load()
	return c.seal(keys.first, keys.byID[keys.first], plain, data)
}

// SealWith encrypts a text as Seal does, with the key of an ID, or returns ErrKey.
func (c *Cipher) SealWith(id ID, plain, data []byte) ([]byte, error) {
	key := c.keys.Load().byID[id]
	if key == nil {
		return nil, ErrKey
	}
	return c.seal(id, key, plain, data), nil
}

func (c *Cipher) seal(id ID, key *cipherKey, plain, data []byte) []byte {
	box := make([]byte, headerSize, len(plain)+Overhead)
	box[0] = format
	copy(box[1:], id[:])
	nonce := box[1+idSize:]
	c.nonce(nonce)
	var space [128]byte
	derived, cached := key.derived(nonce)
	if !cached {
		key.keep(nonce, derived)
	}
	return derived.Seal(box, nonce[half:], plain, withHeader(space[:0], box, data))
}

// nonce fills in a new nonce.
func (c *Cipher) nonce(nonce []byte) {
	c.mu.Lock()
	if c.used++; c.used > perPrefix {
		rand.Read(c.prefix[:])
		c.used = 1
	}
	copy(nonce, c.prefix[:])
	c.mu.Unlock()
	rand.Read(nonce[half:])
}

// IDOf returns the ID of the key of a sealed text.
func IDOf(box []byte) (id ID, ok bool) {
	if len(box) < Overhead || box[0] != format {
		return id, false
	}
	return ID(box[1:]), true
}

// Open decrypts a text. Errors: ErrKey, ErrForged.
func (c *Cipher) Open(box, data []byte) (plain []byte, id ID, err error) {
	id, ok := IDOf(box)
	if !ok {
		return nil, id, ErrForged
	}
	key := c.keys.Load().byID[id]
	if key == nil {
		return nil, id, ErrKey
	}
	nonce := box[1+idSize : headerSize]
	var space [128]byte
	derived, cached := key.derived(nonce)
	plain, err = derived.Open(nil, nonce[half:], box[headerSize:], withHeader(space[:0], box, data))
	if err != nil {
		return nil, id, ErrForged
	}
	if !cached {
		key.keep(nonce, derived)
	}
	return plain, id, nil
}

// withHeader returns what is authenticated besides the text: the format, the key's ID, and the caller's data.
func withHeader(space, box, data []byte) []byte {
	return append(append(space, box[:1+idSize]...), data...)
}

// cipherKey is one key, with the keys that were derived from it.
type cipherKey struct {
	*xaes
	cache sync.Map     // [half]byte of a nonce to cipher.AEAD
	held  atomic.Int64 // in cache, about
}

// maxDerived bounds the derived keys that are kept of each key, of 1.3 KB each. A store has about as many as its heads
// were started since.
const maxDerived = 1024

// derived returns the cipher of a nonce, and whether it was kept.
func (k *cipherKey) derived(nonce []byte) (cipher.AEAD, bool) {
	if a, ok := k.cache.Load([half]byte(nonce)); ok {
		return a.(cipher.AEAD), true
	}
	return k.derive(nonce), false
}

// keep keeps the cipher of a nonce that a holder of the key chose.
func (k *cipherKey) keep(nonce []byte, a cipher.AEAD) {
	if k.held.Add(1) > maxDerived {
		k.cache.Clear()
		k.held.Store(1)
	}
	k.cache.Store([half]byte(nonce), a)
}
