package fleet

import (
	"errors"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// SealKey returns the ID of the key by which a secret that this transaction writes is sealed; empty: that which the
// heads have. The commit compares it, so that nothing is written under a key that was replaced.
func (f *Fleet) SealKey(tx *store.Tx) (id string, err error) {
	k, err := f.Keys.In(tx).Get(trivet.SealKey)
	if errors.Is(err, trivet.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return k.Status.Active, nil
}
