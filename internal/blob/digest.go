package blob

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/trivet-project/trivet"
)

// Digest is the SHA-256 of some content. Its text is safe as a file name.
type Digest [sha256.Size]byte

const algorithm = "sha256:"

// ParseDigest parses "sha256:" and 64 lower-case hex digits, or returns [trivet.ErrInvalid].
func ParseDigest(s string) (Digest, error) {
	var d Digest
	digits, ok := strings.CutPrefix(s, algorithm)
	if !ok || len(digits) != 2*len(d) || strings.ToLower(digits) != digits {
		return d, badDigest(s)
	}
	if _, err := hex.Decode(d[:], []byte(digits)); err != nil {
		return Digest{}, badDigest(s)
	}
	return d, nil
}

func badDigest(s string) error {
	return fmt.Errorf("digest %.80q: %w: it must be sha256: and 64 hex digits", s, trivet.ErrInvalid)
}

// DigestOf returns the digest of b.
func DigestOf(b []byte) Digest { return sha256.Sum256(b) }

func (d Digest) String() string { return algorithm + d.hex() }

func (d Digest) hex() string { return hex.EncodeToString(d[:]) }
