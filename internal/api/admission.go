package api

import (
	"errors"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
	"github.com/trivet-project/trivet/internal/store"
)

// change is one write of one record within its transaction.
type change struct {
	*caller
	held heldBlobs
	tx   *store.Tx
	info trivet.KindInfo
	// old is the stored record, nil at a creation; new is what it will be, nil at a deletion.
	old, new trivet.Record
}

// admission checks a write beyond the record itself, and does what belongs into the same transaction.
type admission func(c *change) error

// admissions are those of the kinds that need one.
func (h *Handler) admissions() map[trivet.Kind]admission {
	return map[trivet.Kind]admission{
		"Machine":   typedAdmission(h.admitMachine),
		"Template":  typedAdmission(h.admitTemplate),
		"Provision": typedAdmission(h.admitProvision),
		"Image":     typedAdmission(h.admitImage),
		"Platform":  typedAdmission(h.admitPlatform),
		"Network":   typedAdmission(h.admitNetwork),
		"Site":      typedAdmission(h.admitSite),
		"Secret":    typedAdmission(h.admitSecret),
		"Account":   typedAdmission(h.admitAccount),
		"Notifier":  typedAdmission(h.admitNotifier),

		"BackupSchedule": typedAdmission(h.admitSchedule),
	}
}

// typedAdmission adapts a function of a kind's own type.
func typedAdmission[P trivet.Record](admit func(c *change, old, next P) error) admission {
	return func(c *change) error {
		old, _ := c.old.(P)
		next, _ := c.new.(P)
		return admit(c, old, next)
	}
}

// admit validates a record by itself and by its kind's admission.
func (h *Handler) admit(c *change) error {
	if c.new != nil {
		if err := c.check(); err != nil {
			return err
		}
	}
	if admit := h.admission[c.info.Kind]; admit != nil {
		return c.named(admit(c))
	}
	return nil
}

// check validates the record by itself and by what it refers to.
func (c *change) check() error { return c.named(errors.Join(c.validate(), c.admitReferences())) }

// validate validates the record by itself. What an earlier release permitted may stay as it is.
func (c *change) validate() error {
	err := trivet.ValidateWritten(c.new)
	if c.old == nil || err == nil || c.new.Validate() != nil {
		return err
	}
	before := map[trivet.FieldError]int{}
	for _, fe := range apitypes.FieldErrors(trivet.ValidateWritten(c.old)) {
		before[withoutIndexes(fe)]++
	}
	var added []error
	for _, fe := range apitypes.FieldErrors(err) {
		if before[withoutIndexes(fe)]--; before[withoutIndexes(fe)] < 0 {
			added = append(added, fe)
		}
	}
	return errors.Join(added...)
}

// withoutIndexes returns an error that is the same wherever the value is in its list.
func withoutIndexes(fe *trivet.FieldError) trivet.FieldError {
	return trivet.FieldError{Field: apitypes.InAnyElement(fe.Field), Problem: apitypes.InAnyElement(fe.Problem)}
}

// named adds to an error which record was refused, where it does not say so itself.
func (c *change) named(err error) error {
	var detailed *trivet.Error
	if err == nil || errors.As(err, &detailed) {
		return err
	}
	op, r := "update", c.new
	switch {
	case c.old == nil:
		op = "create"
	case c.new == nil:
		op, r = "delete", c.old
	}
	return &trivet.Error{Op: op, Kind: c.info.Kind, Name: r.Header().ShortName(), Err: err}
}
