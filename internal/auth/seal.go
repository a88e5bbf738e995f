package auth

import (
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/trivet-project/trivet"
)

// MaxSealed bounds a secret in bytes, so that its sealed text fits into a [trivet.Secret].
const MaxSealed = 8 << 10

const sealPrefix = trivet.Sealed + "v1:"

// FieldRef is the field that holds a sealed secret. The secret can be opened for that field only, so a user who may
// write records cannot move it to a field that is shown.
type FieldRef struct {
	Kind  trivet.Kind
	Name  string
	Field string // path in the JSON, "spec.password"
}

// Sealer encrypts secrets for the store, which is copied to every head, witness and backup (XChaCha20-Poly1305,
// random nonce). Its text is "sealed:v1:<key's id>:<base64url of nonce and ciphertext>". It is safe for concurrent use.
type Sealer struct {
	first string
	keys  map[string]cipher.AEAD // by id
}

// NewSealer returns a Sealer with keys of 32 bytes: the first one seals, all open. To rotate a key, add the new one
// on every head, then make it the first on every head, then seal all secrets again, then remove the old one.
func NewSealer(keys ...[]byte) (*Sealer, error) {
	s := &Sealer{keys: map[string]cipher.AEAD{}}
	for _, key := range keys {
		aead, err := chacha20poly1305.NewX(key)
		if err != nil {
			return nil, fmt.Errorf("sealing key: %w: %w", trivet.ErrInvalid, err)
		}
		sum := sha256.Sum256(append([]byte("trivet sealing key id\n"), key...))
		id := hex.EncodeToString(sum[:4])
		if s.first == "" {
			s.first = id
		}
		s.keys[id] = aead
	}
	if s.first == "" {
		return nil, fmt.Errorf("sealing key: %w: none given", trivet.ErrInvalid)
	}
	return s, nil
}

// Seal encrypts a secret for one field.
func (s *Sealer) Seal(at FieldRef, secret Secret) (string, error) {
	if len(secret) > MaxSealed {
		return "", fmt.Errorf("seal %s: %w: %d bytes; at most %d", at, trivet.ErrTooLarge, len(secret), MaxSealed)
	}
	aead := s.keys[s.first]
	nonce := make([]byte, aead.NonceSize(), aead.NonceSize()+len(secret)+aead.Overhead())
	rand.Read(nonce)
	box := aead.Seal(nonce, nonce, []byte(secret), at.bytes())
	return sealPrefix + s.first + ":" + base64.RawURLEncoding.EncodeToString(box), nil
}

// Open decrypts a secret that was sealed for this field, or returns [trivet.ErrInvalid].
func (s *Sealer) Open(at FieldRef, text string) (Secret, error) {
	rest, ok := strings.CutPrefix(text, sealPrefix)
	id, coded, ok2 := strings.Cut(rest, ":")
	if !ok || !ok2 {
		return "", fmt.Errorf("open %s: %w: not a sealed secret", at, trivet.ErrInvalid)
	}
	if len(coded) > base64.RawURLEncoding.EncodedLen(MaxSealed+64) {
		return "", fmt.Errorf("open %s: %w", at, trivet.ErrTooLarge)
	}
	aead, ok := s.keys[id]
	if !ok {
		return "", fmt.Errorf("open %s: %w: sealed with key %.16q, which this head does not have",
			at, trivet.ErrInvalid, id)
	}
	box, err := base64.RawURLEncoding.Strict().DecodeString(coded)
	if err != nil || len(box) < aead.NonceSize() {
		return "", fmt.Errorf("open %s: %w: damaged", at, trivet.ErrInvalid)
	}
	plain, err := aead.Open(nil, box[:aead.NonceSize()], box[aead.NonceSize():], at.bytes())
	if err != nil {
		return "", fmt.Errorf("open %s: %w: damaged, or sealed for another field (enter the secret again)",
			at, trivet.ErrInvalid)
	}
	return Secret(plain), nil
}

func (p FieldRef) String() string { return fmt.Sprintf("%s %s %s", p.Kind, p.Name, p.Field) }

// bytes is the additional data of the encryption: each part with its length, so that no two fields share it.
func (p FieldRef) bytes() []byte {
	var b []byte
	for _, part := range []string{string(p.Kind), p.Name, p.Field} {
		b = binary.BigEndian.AppendUint32(b, uint32(len(part)))
		b = append(b, part...)
	}
	return b
}
