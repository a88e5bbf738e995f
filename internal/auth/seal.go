package auth

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/keyring"
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

// Sealer encrypts secrets once more than the store does, for the places where records are decrypted: the memory of
// heads, the API, exports. Its text is "sealed:v1:" and the base64url of what [keyring.Cipher] returns. It is safe for
// concurrent use.
type Sealer struct{ cipher *keyring.Cipher }

// NewSealer returns a Sealer with the keys of a ring.
func NewSealer(keys keyring.Ring) *Sealer { return &Sealer{keyring.NewCipher(keys)} }

// Seal encrypts a secret for one field with the key of an ID; empty: the first. It returns [trivet.ErrUnavailable]
// where this head does not have that key.
func (s *Sealer) Seal(at FieldRef, secret Secret, key string) (string, error) {
	if len(secret) > MaxSealed {
		return "", fmt.Errorf("seal %s: %w: %d bytes; at most %d", at, trivet.ErrTooLarge, len(secret), MaxSealed)
	}
	id := s.cipher.First()
	if key != "" {
		var err error
		if id, err = keyring.ParseID(key); err != nil {
			return "", fmt.Errorf("seal %s: %w", at, err)
		}
	}
	box, err := s.cipher.SealWith(id, []byte(secret), at.bytes())
	if err != nil {
		return "", fmt.Errorf("seal %s: %w: key %s: %w", at, trivet.ErrUnavailable, id, err)
	}
	return sealPrefix + base64.RawURLEncoding.EncodeToString(box), nil
}

// Open decrypts a secret that was sealed for this field, or returns [trivet.ErrInvalid].
func (s *Sealer) Open(at FieldRef, text string) (Secret, error) {
	coded, ok := strings.CutPrefix(text, sealPrefix)
	if !ok {
		return "", fmt.Errorf("open %s: %w: not a sealed secret", at, trivet.ErrInvalid)
	}
	if len(coded) > base64.RawURLEncoding.EncodedLen(MaxSealed+keyring.Overhead) {
		return "", fmt.Errorf("open %s: %w", at, trivet.ErrTooLarge)
	}
	box, err := base64.RawURLEncoding.Strict().DecodeString(coded)
	if err != nil {
		return "", fmt.Errorf("open %s: %w: damaged", at, trivet.ErrInvalid)
	}
	plain, id, err := s.cipher.Open(box, at.bytes())
	switch {
	case errors.Is(err, keyring.ErrKey):
		return "", fmt.Errorf("open %s: %w: key %s: %w", at, trivet.ErrInvalid, id, err)
	case err != nil:
		return "", fmt.Errorf("open %s: %w: damaged, or sealed for another field (enter the secret again)",
			at, trivet.ErrInvalid)
	}
	return Secret(plain), nil
}

// MissingKey returns the ID of the key of a sealed text, if this head does not have it.
func (s *Sealer) MissingKey(text string) (id string, missing bool) {
	key, ok := sealedWith(text)
	if ok && !s.cipher.Has(key) {
		return key.String(), true
	}
	return "", false
}

// SealedWith returns the ID of the key of a sealed text; empty where it is none.
func SealedWith(text string) string {
	if key, ok := sealedWith(text); ok {
		return key.String()
	}
	return ""
}

func sealedWith(text string) (keyring.ID, bool) {
	coded, _ := strings.CutPrefix(text, sealPrefix)
	box, err := base64.RawURLEncoding.Strict().DecodeString(coded)
	key, ok := keyring.IDOf(box)
	return key, ok && err == nil
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
