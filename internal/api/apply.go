package api

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
	"github.com/trivet-project/trivet/internal/ownership"
	"github.com/trivet-project/trivet/internal/store"
)

// applying is an apply of one record.
type applying struct {
	*writer
	manager string
	record  trivet.Record
	fields  []ownership.Field
	created bool
}

// apply creates the record of a request, or changes the fields of its manager. See package ownership.
func (wr *writer) apply(w http.ResponseWriter, r *http.Request) error {
	a := &applying{writer: wr, manager: cmp.Or(r.URL.Query().Get("manager"), ownership.Default)}
	if err := ownership.ValidateManager(a.manager); err != nil {
		return err
	}
	rec, err := wr.read()
	if err != nil {
		return err
	}
	a.record = rec
	if a.fields, err = appliedFields(wr.body, rec); err != nil {
		return err
	}
	uid := rand.Text()
	now, err := wr.update(r, func(tx *store.Tx) error {
		old, err := tx.Record(wr.info.Kind, wr.fullName())
		if a.created = errors.Is(err, trivet.ErrNotFound); a.created {
			return a.create(tx, uid)
		}
		if err != nil {
			return err
		}
		if tx.ClusterVersion().Compare(trivet.ManagedRelease) < 0 { // heads that do not know fields of managers
			return wr.replace(tx, old, rec)
		}
		return a.change(tx, old)
	})
	if err != nil {
		return err
	}
	status := http.StatusOK
	if a.created {
		status = http.StatusCreated
	}
	return respond(w, status, now)
}

// appliedFields returns the fields of a record that is applied.
func appliedFields(body []byte, rec trivet.Record) ([]ownership.Field, error) {
	text, err := json.Marshal(rec)
	if err != nil {
		return nil, err
	}
	given, err := object(body)
	if err != nil {
		return nil, err
	}
	record, err := object(text)
	return ownership.Fields(given, record), err
}

// object decodes a JSON object.
func object(text []byte) (map[string]any, error) {
	v, err := apitypes.Parse(text)
	if err != nil {
		return nil, err
	}
	o, ok := v.(map[string]any)
	if !ok {
		return nil, &trivet.FieldError{Field: "record", Problem: "must be an object"}
	}
	return o, nil
}

func (a *applying) create(tx *store.Tx, uid string) error {
	next, err := clone(a.record)
	if err != nil {
		return err
	}
	head := next.Header()
	head.UID = uid
	if tx.ClusterVersion().Compare(trivet.ManagedRelease) >= 0 {
		owners, err := ownership.Owners{}.Applied(a.manager, a.fields, nil, nil)
		if err != nil {
			return err
		}
		head.Managed = owners
	}
	if err := a.h.admit(&change{held: a.held, caller: a.c, tx: tx, info: a.info, new: next}); err != nil {
		return err
	}
	return tx.CreateRecord(next)
}

// change changes the stored record by the apply.
func (a *applying) change(tx *store.Tx, old trivet.Record) error {
	stored, _, err := tx.Raw(a.info.Kind, a.fullName())
	if err != nil {
		return err
	}
	owners := ownership.Owners(old.Header().Managed)
	patch, err := json.Marshal(owners.Patch(a.manager, a.fields))
	if err != nil {
		return err
	}
	next, err := a.merge(tx, old, stored, patch)
	if err != nil {
		return err
	}
	before, after, err := objects(stored, next)
	if err != nil {
		return err
	}
	if wrong := owners.Conflicts(a.manager, a.fields, before, after); len(wrong) > 0 && !a.force {
		return a.conflict(wrong)
	}
	if owners, err = owners.Applied(a.manager, a.fields, before, after); err != nil {
		return err
	}
	if next, err = withManaged(next, owners); err != nil || apitypes.Equal(stored, next) {
		return err
	}
	if err := a.matches(old, a.record.Header().Generation); err != nil {
		return err
	}
	return tx.PutRaw(a.info.Kind, a.fullName(), next)
}

// conflict returns the error of an apply that would overwrite fields of others.
func (a *applying) conflict(wrong []*trivet.FieldError) error {
	var errs []error
	for _, fe := range wrong {
		errs = append(errs, fe)
	}
	return &trivet.Error{Op: "apply", Kind: a.info.Kind, Name: a.shortName(),
		Hint: "write the record's value into the file, or overwrite it: --force-conflicts",
		Err:  fmt.Errorf("%w: %w", trivet.ErrConflict, errors.Join(errs...))}
}

func objects(a, b []byte) (x, y map[string]any, err error) {
	if x, err = object(a); err == nil {
		y, err = object(b)
	}
	return x, y, err
}

// withManaged returns a record with other owners of its fields.
func withManaged(record []byte, owners ownership.Owners) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(record, &fields); err != nil {
		return nil, err
	}
	text, err := json.Marshal(owners)
	if err != nil {
		return nil, err
	}
	if fields["managed"] = text; len(owners) == 0 {
		delete(fields, "managed")
	}
	return json.Marshal(fields)
}

// changedDirectly notes the fields that a write which is not an apply has changed.
func changedDirectly(old, next trivet.Record) error {
	if len(old.Header().Managed) == 0 {
		return nil
	}
	x, err := json.Marshal(old)
	if err != nil {
		return err
	}
	y, err := json.Marshal(next)
	if err != nil {
		return err
	}
	before, after, err := objects(x, y)
	if err != nil {
		return err
	}
	next.Header().Managed = ownership.Owners(old.Header().Managed).Changed(before, after)
	return nil
}

// changedByPatch is changedDirectly for the JSON of a patched record.
func changedByPatch(old trivet.Record, stored, patched []byte) ([]byte, error) {
	managed := old.Header().Managed
	if len(managed) == 0 {
		return patched, nil
	}
	before, after, err := objects(stored, patched)
	if err != nil {
		return nil, err
	}
	return withManaged(patched, ownership.Owners(managed).Changed(before, after))
}
