package membership

import (
	"context"
	"errors"
	"fmt"
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
		if reached := tx.ClusterVersion(); name == trivet.BootCAKey && trivet.BootCARelease.Compare(reached) > 0 {
			return &trivet.Error{Op: "rotate", Kind: "Key", Name: name, Hint: "upgrade all heads first",
				Err: fmt.Errorf("%w: its rotation needs release %s on all heads, and the cluster is at %s",
					trivet.ErrConflict, trivet.BootCARelease, reached)}
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

// DropFormer makes heads send no certificates of former boot CAs any more, and returns the record of the boot CA.
// Firmware that trusts former ones only does not boot by HTTPS from then on.
func (r *Records) DropFormer(ctx context.Context, name string) (key *trivet.Key, err error) {
	err = r.update(ctx, func(tx *store.Tx) error {
		key, err = r.Keys.In(tx).Get(name)
		fail := func(err error, hint string) error {
			return &trivet.Error{Op: "drop former", Kind: "Key", Name: name, Err: err, Hint: hint}
		}
		switch {
		case name != trivet.BootCAKey:
			return fail(fmt.Errorf("%w: only the boot CA has former ones that are kept", trivet.ErrInvalid),
				"the name of its key is "+trivet.BootCAKey)
		case errors.Is(err, trivet.ErrNotFound):
			key, err = &trivet.Key{Meta: trivet.Meta{Name: name}}, nil
			return errUnchanged
		case err != nil:
			return err
		case key.Rotating():
			return fail(fmt.Errorf("%w: its rotation is in progress", trivet.ErrConflict),
				"wait until it is complete: trivet rotate "+name)
		case len(key.Status.Former) == 0:
			return errUnchanged
		}
		key.Status.Former = nil
		key.Status.Events++
		return errors.Join(r.Keys.In(tx).Put(key), r.Events.In(tx).Put(&trivet.Event{
			Meta: trivet.Meta{Name: trivet.KeyEventName(name, key.Status.Events)},
			Spec: trivet.EventSpec{Subject: "key/" + name, SubjectUID: key.UID, Seq: key.Status.Events, Time: r.now(),
				Reason: trivet.ReasonKeyRotated, Head: r.self,
				Message: "former boot CAs were dropped: firmware that trusts none but these does not boot by HTTPS"}}))
	})
	return key, err
}
