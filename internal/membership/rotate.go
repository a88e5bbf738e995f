package membership

import (
	"context"
	"errors"
	"slices"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// RotateKey requests the rotation of a key, and returns its record. While one is in progress, that is the one. grace is
// [trivet.KeySpec.Grace]; nil: the default.
func (r *Records) RotateKey(ctx context.Context, name string, grace *trivet.Duration) (key *trivet.Key, err error) {
	err = r.update(ctx, func(tx *store.Tx) error {
		key, err = r.Keys.In(tx).Get(name)
		if errors.Is(err, trivet.ErrNotFound) && slices.Contains(trivet.KeyNames(), name) {
			key, err = &trivet.Key{Meta: trivet.Meta{Name: name}}, nil
		}
		switch {
		case err != nil:
			return err
		case key.Rotating():
			return errUnchanged
		}
		key.Spec.Rotations++
		key.Spec.Grace = trivet.DefaultGrace(name)
		if grace != nil {
			key.Spec.Grace = *grace
		}
		if err := key.Validate(); err != nil {
			return err
		}
		return r.Keys.In(tx).Put(key)
	})
	return key, err
}
