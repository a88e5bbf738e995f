// Package archive is the format of a backup file. It begins with one line of text of fixed size and a manifest in
// JSON, which can be read by themselves; the keys of the cluster, encrypted, and a snapshot of its store follow.
//
//	trivet-backup FORMAT LENGTH SHA256 MAC     155 bytes with the line feed
//	manifest                                   LENGTH bytes
//	keys                                       manifest.keys.bytes
//	store                                      manifest.store.bytes
//
// So a file that lacks its end, or has a wrong byte anywhere, is found: the sizes and digests of what follows are in
// the manifest, SHA256 is that of the manifest, and MAC authenticates it, with a key of the cluster.
package archive

import (
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/trivet-project/trivet"
)

// Format is the format that this version writes, and the only one that it reads.
const Format = 1

// Bounds of what is read into memory, and of a store.
const (
	maxManifest = 32 << 20
	maxKeys     = 1 << 20
	maxStore    = 1 << 40
)

// Errors of a file. Each is a [trivet.ErrInvalid].
var (
	// ErrNoBackup: the file is something else.
	ErrNoBackup = fmt.Errorf("%w: it is not a backup", trivet.ErrInvalid)
	// ErrNewer: a later version wrote it.
	ErrNewer = fmt.Errorf("%w: it was made by a newer version", trivet.ErrInvalid)
	// ErrTruncated: its end is missing.
	ErrTruncated = fmt.Errorf("%w: it is truncated", trivet.ErrInvalid)
	// ErrDamaged: it is not what was written.
	ErrDamaged = fmt.Errorf("%w: it is damaged or was changed", trivet.ErrInvalid)
)

// Part is one part of the file after the manifest.
type Part struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"` // 64 hex digits
}

// Manifest describes a backup. It is not secret.
type Manifest struct {
	Cluster string `json:"cluster"` // ID of the cluster
	Version string `json:"version"` // of the program of the head
	// Release is what the records may use, and a head that serves them must understand.
	Release trivet.Release `json:"release"`
	Head    string         `json:"head"`
	Time    time.Time      `json:"time"`
	// Revision is that of the store.
	Revision int64 `json:"revision"`
	// Recipient is the public part of the recovery key.
	Recipient string `json:"recipient"`
	Keys      Part   `json:"keys"`
	Store     Part   `json:"store"`
	// Schedule is the UID of the schedule that it was made by, and Incarnation that of the cluster; empty: none.
	Schedule    string `json:"schedule,omitempty"`
	Incarnation string `json:"incarnation,omitempty"`
	// Contents: the contents of the blobs were saved with the backup, and not only their digests.
	Contents bool             `json:"contents"`
	Blobs    []trivet.BlobRef `json:"blobs"`
}

// validate checks what readers rely on.
func (m *Manifest) validate() error {
	switch {
	case trivet.ValidateName(m.Cluster) != nil:
		return errors.New("it names no cluster")
	case m.Revision < 1:
		return fmt.Errorf("its revision is %d", m.Revision)
	case !m.Keys.isValid(maxKeys), !m.Store.isValid(maxStore):
		return errors.New("the sizes or digests of its parts are wrong")
	}
	for _, b := range m.Blobs {
		if digits, ok := DigestOf(b); !ok || len(digits) != 64 || b.Bytes < 0 {
			return fmt.Errorf("the blob %.80q is wrong", b.Digest)
		}
	}
	return nil
}

func (p *Part) isValid(most int64) bool {
	return p.Bytes >= 0 && p.Bytes <= most && isHex(p.SHA256)
}

// isHex reports whether a text is a SHA-256 as it is written here.
func isHex(text string) bool {
	sum, err := hex.DecodeString(text)
	return err == nil && len(sum) == 32 && hex.EncodeToString(sum) == text
}

// DigestOf returns the hex digits of a blob's digest, which are a safe name of a file.
func DigestOf(b trivet.BlobRef) (digits string, ok bool) {
	const algorithm = "sha256:"
	if len(b.Digest) < len(algorithm) || b.Digest[:len(algorithm)] != algorithm {
		return "", false
	}
	digits = b.Digest[len(algorithm):]
	return digits, isHex(digits)
}
