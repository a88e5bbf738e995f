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
	former  string // the manager whose fields this one takes over
	record  trivet.Record
	fields  []ownership.Field
	created bool
}

// apply creates the record of a request, or changes the fields of its manager. See package ownership.
func (wr *writer) apply(w http.ResponseWriter, r *http.Request) error {
	a, err := wr.newApplying(r)
	if err != nil {
		return err
	}
	uid := rand.Text()
	now, err := wr.update(r, func(tx *store.Tx) error {
		knows := tx.ClusterVersion().Compare(trivet.ManagedRelease) >= 0
		if !knows && (a.manager != ownership.Default || a.former != "" || wr.force) {
			return &trivet.Error{Op: "apply", Hint: "upgrade the other heads first: trivet head list",
				Err: fmt.Errorf("%w: managers of fields need release %s on all heads", trivet.ErrConflict,
					trivet.ManagedRelease)}
		}
		old, err := tx.Record(wr.info.Kind, wr.fullName())
		switch a.created = errors.Is(err, trivet.ErrNotFound); {
		case a.created:
			return a.create(tx, uid, knows)
		case err != nil:
			return err
		case !knows:
			return wr.replace(tx, old, a.record)
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

// newApplying reads the request of an apply.
func (wr *writer) newApplying(r *http.Request) (*applying, error) {
	q := r.URL.Query()
	a := &applying{writer: wr, manager: cmp.Or(q.Get("manager"), ownership.Default), former: q.Get("former")}
	err := ownership.ValidateManager(a.manager)
	if a.former != "" {
		err = errors.Join(err, ownership.ValidateManager(a.former))
	}
	if err != nil {
		return nil, err
	}
	if a.record, err = wr.read(); err != nil {
		return nil, err
	}
	a.fields, err = appliedFields(wr.body, a.record)
	return a, err
}

// appliedFields returns the fields of a record that is applied.
func appliedFields(body []byte, rec trivet.Record) ([]ownership.Field, error) {
	given, err := object(body)
	if err != nil {
		return nil, err
	}
	record, err := typed(rec)
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

func (a *applying) create(tx *store.Tx, uid string, knows bool) error {
	next, err := clone(a.record)
	if err != nil {
		return err
	}
	if a.revision != 0 {
		return fmt.Errorf("%w: your copy is revision %d; the record was deleted", trivet.ErrConflict, a.revision)
	}
	head := next.Header()
	head.UID = uid
	if err := a.h.admit(&change{held: a.held, caller: a.c, tx: tx, info: a.info, new: next}); err != nil {
		return err
	}
	if knows {
		owners, err := ownership.Owners{}.Applied(a.manager, a.fields, nil, nil)
		if err != nil {
			return err
		}
		head.Managed, head.Creator = owners, a.manager
	}
	return tx.CreateRecord(next)
}

// change changes the stored record by the apply.
func (a *applying) change(tx *store.Tx, old trivet.Record) error {
	stored, _, err := tx.Raw(a.info.Kind, a.fullName())
	if err != nil {
		return err
	}
	before, err := typed(old)
	if err != nil {
		return err
	}
	owners := ownership.Owners(old.Header().Managed).Renamed(a.former, a.manager)
	patch, err := json.Marshal(owners.Patch(a.manager, a.fields, before))
	if err != nil {
		return err
	}
	next, err := a.merge(tx, old, stored, patch)
	if err != nil {
		return err
	}
	rec, err := a.decode(next)
	if err != nil {
		return err
	}
	after, err := typed(rec)
	if err != nil {
		return err
	}
	if wrong := owners.Conflicts(a.manager, a.fields, before, after); len(wrong) > 0 && !a.force {
		return a.conflict(wrong)
	}
	if owners, err = owners.Applied(a.manager, a.fields, before, after); err != nil {
		return err
	}
	if next, err = withOwners(next, owners, a.creator(old)); err != nil || apitypes.Equal(stored, next) {
		return err
	}
	if err := a.matches(old, a.record.Header().Generation); err != nil {
		return err
	}
	return tx.PutRaw(a.info.Kind, a.fullName(), next)
}

// creator returns the manager that has created the record.
func (a *applying) creator(old trivet.Record) string {
	if is := old.Header().Creator; is == "" || is != a.former {
		return is
	}
	return a.manager
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

// typed returns a record as its type writes it, so that two forms of a value are the same.
func typed(rec trivet.Record) (map[string]any, error) {
	text, err := json.Marshal(rec)
	if err != nil {
		return nil, err
	}
	return object(text)
}

// decode returns the record of its JSON.
func (wr *writer) decode(doc []byte) (trivet.Record, error) {
	rec := wr.info.New()
	return rec, json.Unmarshal(doc, rec)
}

// withOwners returns a record with other owners of its fields.
func withOwners(record []byte, owners ownership.Owners, creator string) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(record, &fields); err != nil {
		return nil, err
	}
	for name, value := range map[string]any{"managed": owners, "creator": creator} {
		text, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		fields[name] = text
	}
	if len(owners) == 0 {
		delete(fields, "managed")
	}
	if creator == "" {
		delete(fields, "creator")
	}
	return json.Marshal(fields)
}

// changed returns the owners of a record's fields after a write that is not an apply.
func changed(old, next trivet.Record) (ownership.Owners, error) {
	owners := ownership.Owners(old.Header().Managed)
	if len(owners) == 0 {
		return nil, nil
	}
	before, err := typed(old)
	if err != nil {
		return nil, err
	}
	after, err := typed(next)
	return owners.Changed(before, after), err
}

// withChanged returns a record that a patch has changed, with its owners after that.
func (wr *writer) withChanged(old trivet.Record, patched []byte) ([]byte, error) {
	next, err := wr.decode(patched)
	if err != nil {
		return nil, err
	}
	owners, err := changed(old, next)
	if err != nil {
		return nil, err
	}
	return withOwners(patched, owners, old.Header().Creator)
}
