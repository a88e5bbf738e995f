package trivet

import (
	"slices"
	"strings"
	"time"
)

// Key is a set of secret keys of the cluster that can be rotated. Its record has their IDs, and never a key. There are
// five: "ca", the CA that signs the certificates of heads; "store", what the values of the store are encrypted with;
// "seal", what the values of secrets are encrypted with once more; "boot", what signs the tokens in boot scripts and
// seeds; and "boot-ca", the CA that firmware verifies the heads by where it boots by HTTPS.
type Key struct {
	Meta
	Spec   KeySpec   `json:"spec"`
	Status KeyStatus `json:"status,omitzero"`
}

// The names of the records of keys.
const (
	StoreKey = "store"
	SealKey  = "seal"
	BootKey  = "boot"
	CAKey    = "ca"
	// BootCAKey is rotated since [BootCARelease].
	BootCAKey = "boot-ca"
)

// BootCARelease is the release of heads that replace the boot CA while they run. An earlier one reads its keys at its
// start only.
const BootCARelease Release = "0.3.1"

// KeyNames returns the names of the records of keys, in the order in which all are rotated: while a stolen CA is
// trusted, it could be used to request the others.
func KeyNames() []string { return []string{CAKey, StoreKey, SealKey, BootKey, BootCAKey} }

// KeySpec is what operators requested.
type KeySpec struct {
	// Rotations counts the rotations that were requested.
	Rotations int64 `json:"rotations,omitempty"`
	// Grace is, of the CA, how long both are trusted before the new one signs, so that clients follow; of the boot key,
	// how long tokens of the old one are valid; of the boot CA, how long the old one signs after all heads have the new
	// one. The others have none.
	Grace Duration `json:"grace,omitempty"`
}

// RotateRequest is the body of a request to rotate a key. It may be left out.
type RotateRequest struct {
	// Grace is [KeySpec.Grace]; nil: the default.
	Grace *Duration `json:"grace,omitempty"`
}

// The bounds of [KeySpec.Grace].
const (
	MinGrace = Duration(time.Second)
	MaxGrace = Duration(24 * time.Hour)
)

// DefaultGrace returns the default of [KeySpec.Grace] of a key; 0: it has none.
func DefaultGrace(name string) Duration {
	switch name {
	case CAKey:
		return Duration(10 * time.Minute)
	case BootKey: // from the boot script to the first boot of the installed system
		return Duration(time.Hour)
	case BootCAKey: // what trusts the old one accepts what the new one has signed
		return MinGrace
	}
	return 0
}

// KeyStatus is the keys, and the progress of a rotation.
type KeyStatus struct {
	// Active is the ID of the key in use; empty: it was never rotated. It has 8 hex digits; that of a CA, and of a boot
	// CA, is its pin: sha256: and the digest of the certificate.
	Active string `json:"active,omitempty"`
	// Next is the ID of the key that replaces it, until it does.
	Next string `json:"next,omitempty"`
	// Old is the ID of the key that was replaced, until no head has it.
	Old string `json:"old,omitempty"`
	// Former are the pins of the former boot CAs, the last one first. Heads send the certificates by which these signed
	// their successors, so that firmware that trusts one of them boots, until they are dropped.
	Former []string `json:"former,omitempty"`
	// Phase is that of the rotation; empty: none is in progress.
	Phase KeyPhase `json:"phase,omitempty"`
	// Reason is what the rotation waits for.
	Reason string `json:"reason,omitempty"`
	// Rotations counts the rotations that are complete.
	Rotations int64 `json:"rotations,omitempty"`
	// Until is when the grace is over, at the earliest.
	Until time.Time `json:"until,omitzero"`
	// Started is when the rotation started.
	Started time.Time `json:"started,omitzero"`
	// Rotated is when the last rotation was complete.
	Rotated time.Time `json:"rotated,omitzero"`
	// Resealed is how many values this rotation, or the last one, has encrypted again.
	Resealed int64 `json:"resealed,omitempty"`
	// Read is how many values the present pass over all values has read.
	Read int64 `json:"read,omitempty"`
	// Events counts the events of this record.
	Events int64 `json:"events,omitempty"`
}

// KeyPhase is the phase of a rotation.
type KeyPhase string

// The phases, in their order.
const (
	KeyDistributing KeyPhase = "distributing" // all heads get the new key, and nothing uses it yet
	KeyFollowing    KeyPhase = "following"    // of the CAs and the boot key: both are valid for the grace
	KeyResealing    KeyPhase = "resealing"    // of store and secrets: what is under the old one is encrypted again
	KeySigning      KeyPhase = "signing"      // of the CA: the new one signs the certificates of all heads
	KeyDropping     KeyPhase = "dropping"     // nothing needs the old one; all heads drop it
)

// Rotating reports whether a requested rotation is not complete.
func (k *Key) Rotating() bool { return k.Spec.Rotations > k.Status.Rotations }

// Validate checks a key's record by itself.
func (k *Key) Validate() error {
	var p problems
	if !slices.Contains(KeyNames(), k.Name) {
		p.add("name", "is %q; the only keys with a record are %s", k.Name, strings.Join(KeyNames(), ", "))
	}
	switch g, has := k.Spec.Grace, DefaultGrace(k.Name) > 0; {
	case has && (g < MinGrace || g > MaxGrace):
		p.add("spec.grace", "is %s; must be from %s to %s", g, MinGrace, MaxGrace)
	case !has && g != 0:
		p.add("spec.grace", "is for the keys %q, %q and %q only", BootKey, CAKey, BootCAKey)
	}
	return p.err()
}
