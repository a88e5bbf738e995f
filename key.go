package trivet

import "time"

// Key is a set of secret keys of the cluster that can be rotated. Its record has their IDs, and never a key. There is
// one, named "store": what the values of the store are encrypted with.
type Key struct {
	Meta
	Spec   KeySpec   `json:"spec"`
	Status KeyStatus `json:"status,omitzero"`
}

// StoreKey is the name of the record of the keys of the store.
const StoreKey = "store"

// KeySpec is what operators requested.
type KeySpec struct {
	// Rotations counts the rotations that were requested.
	Rotations int64 `json:"rotations,omitempty"`
}

// KeyStatus is the keys, and the progress of a rotation.
type KeyStatus struct {
	// Active is the ID of the key in use, 8 hex digits; empty: it was never rotated.
	Active string `json:"active,omitempty"`
	// Next is the ID of the key that replaces it, until it does.
	Next string `json:"next,omitempty"`
	// Old is the ID of the key that was replaced, until no head has it.
	Old string `json:"old,omitempty"`
	// Phase is that of the rotation; empty: none is in progress.
	Phase KeyPhase `json:"phase,omitempty"`
	// Reason is what the rotation waits for.
	Reason string `json:"reason,omitempty"`
	// Rotations counts the rotations that are complete.
	Rotations int64 `json:"rotations,omitempty"`
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
	KeyDistributing KeyPhase = "distributing" // all full heads get the new key, and nothing uses it yet
	KeyResealing    KeyPhase = "resealing"    // it is in use; what is encrypted with the old one is encrypted again
	KeyDropping     KeyPhase = "dropping"     // nothing is encrypted with the old one; all heads drop it
)

// Rotating reports whether a requested rotation is not complete.
func (k *Key) Rotating() bool { return k.Spec.Rotations > k.Status.Rotations }

// Validate checks a key's record by itself.
func (k *Key) Validate() error {
	var p problems
	if k.Name != StoreKey {
		p.add("name", "is %q; the only keys with a record are %q", k.Name, StoreKey)
	}
	return p.err()
}
