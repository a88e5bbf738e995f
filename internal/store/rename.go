package store

import (
	"errors"
	"fmt"

	"github.com/trivet-project/trivet"
)

// Rename writes a record in the place of the one of another name, which it was: it keeps the UID, the time of creation,
// the generation, and the fields that this version does not know. What refers to it is up to the caller. Watchers
// receive a deletion and a new record of the same UID, at one revision. Errors: as of Put, of the former name;
// ErrNotFound; ErrExists if there is a record of the new name.
func (t View[T]) Rename(from string, v *T) error {
	rec := any(v).(trivet.Record)
	err := t.tx.rename(t.info, from, rec)
	if named := (*trivet.Error)(nil); err == nil || errors.As(err, &named) {
		return err
	}
	return t.tx.fail("rename", t.info, from, err)
}

func (tx *Tx) rename(info *kindInfo, from string, rec trivet.Record) error {
	h := rec.Header()
	h.Kind = info.kind
	to := h.FullName()
	if err := errors.Join(rec.Validate(), info.validateName(to)); err != nil {
		return err
	}
	old, err := tx.stored("rename", info, from, h.Revision)
	switch {
	case err != nil:
		return err
	case old == nil:
		return trivet.ErrNotFound
	case old.spec != nil || info.cold():
		return fmt.Errorf("%w: records of kind %s keep their names", trivet.ErrInvalid, info.kind)
	}
	if _, err := tx.get(info, to); !errors.Is(err, trivet.ErrNotFound) {
		return fmt.Errorf("%w: there is a record of the name %s", trivet.ErrExists, trivet.ShortName(to))
	}
	h.Revision = 0 // the new name has none
	if err := tx.fillHeader(h, old); err != nil {
		return err
	}
	tx.fillUIDs(info, rec)
	w, err := encodeChanged(info, rec, old)
	if err != nil {
		return err
	}
	w.rec = info.copy(rec)
	if err := tx.putDoc("rename", info, to, w, nil); err != nil {
		return err
	}
	return tx.del(info, from)
}
