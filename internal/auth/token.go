package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/trivet-project/trivet"
)

// An API token is "trivet_<id>_<secret>". The id is the name of its record, the secret has 256 random bits; only a hash
// of the whole is kept. A plain SHA-256 is enough for that: slow hashes protect secrets that can be guessed.
const (
	tokenPrefix = "trivet_"
	idLen       = 16 // base32 of 10 bytes
	secretLen   = 52 // base32 of 32 bytes
	hashPrefix  = "sha256:"
)

const base32Digits = "abcdefghijklmnopqrstuvwxyz234567"

var base32Lower = base32.NewEncoding(base32Digits).WithPadding(base32.NoPadding)

// NewToken returns a new API token: the name of its record, the text to show once to its owner, and the hash to store.
func NewToken() (id string, plain Secret, hash string) {
	var b [42]byte
	rand.Read(b[:])
	id = base32Lower.EncodeToString(b[:10])
	plain = Secret(tokenPrefix + id + "_" + base32Lower.EncodeToString(b[10:]))
	return id, plain, tokenHash(string(plain))
}

// ParseToken returns the name of a token's record. The token is not verified until [CheckToken] succeeds.
func ParseToken(plain string) (id string, err error) {
	rest, ok := strings.CutPrefix(plain, tokenPrefix)
	if !ok || len(rest) != idLen+1+secretLen || rest[idLen] != '_' {
		return "", fmt.Errorf("API token: %w: not of the form trivet_<id>_<secret>", trivet.ErrUnauthenticated)
	}
	id = rest[:idLen]
	if strings.Trim(id, base32Digits) != "" || strings.Trim(rest[idLen+1:], base32Digits) != "" {
		return "", fmt.Errorf("API token: %w: not of the form trivet_<id>_<secret>", trivet.ErrUnauthenticated)
	}
	return id, nil
}

// CheckToken compares a presented token with the hash in its record, in constant time.
func CheckToken(plain, hash string) error {
	if subtle.ConstantTimeCompare([]byte(tokenHash(plain)), []byte(hash)) != 1 {
		return fmt.Errorf("API token: %w: wrong secret", trivet.ErrUnauthenticated)
	}
	return nil
}

func tokenHash(plain string) string {
	sum := sha256.Sum256([]byte(plain))
	return hashPrefix + hex.EncodeToString(sum[:])
}
