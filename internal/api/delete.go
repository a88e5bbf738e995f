package api

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// maxCascade bounds the records that one deletion deletes. The sweep of what refers to deleted records deletes the
// others, which are without effect.
const maxCascade = 50

// delete deletes a record by the rules of the references to it (see [trivet.References]).
func (h *Handler) delete(w http.ResponseWriter, r *http.Request, c *caller, info trivet.KindInfo) error {
	wr, err := h.newWriter(w, r, c, info)
	if err != nil {
		return err
	}
	var result trivet.Deletion
	_, err = h.group.Update(r.Context(), func(tx *store.Tx) error {
		old, err := tx.Record(info.Kind, wr.fullName())
		if err != nil {
			return err
		}
		if err := wr.matches(old, 0); err != nil {
			return err
		}
		if err := h.admit(&change{caller: c, tx: tx, info: info, old: old}); err != nil {
			return err
		}
		if result.Orphaned, err = h.deleteReferrers(tx, old, wr.force); err != nil {
			return err
		}
		if wr.dryRun {
			return errDryRun
		}
		return tx.Delete(info.Kind, wr.fullName())
	})
	if err != nil && !errors.Is(err, errDryRun) {
		return wr.named(err)
	}
	return respond(w, http.StatusOK, result)
}

// deleteReferrers deletes what refers to a record and does not exist without it. It fails if a reference prevents the
// deletion, and returns those that force leaves without a target.
func (h *Handler) deleteReferrers(tx *store.Tx, old trivet.Record, force bool) (orphaned []trivet.Orphan, err error) {
	orphaned = []trivet.Orphan{}
	deleted := 0
	var refused []store.Referrer
	for _, r := range tx.Referrers(old) {
		head := r.Record.Header()
		switch {
		case r.OnDelete == trivet.DeletionCascades && h.admission[r.From] != nil: // by its controller
		case r.OnDelete == trivet.DeletionCascades:
			if deleted++; deleted <= maxCascade {
				err = errors.Join(err, tx.Delete(r.From, head.FullName()))
			}
		case r.OnDelete == trivet.DeletionForced && force:
			orphaned = append(orphaned, trivet.Orphan{Kind: r.From, Project: head.Project, Name: head.Name,
				Field: r.Field})
		default:
			refused = append(refused, r)
		}
	}
	if len(refused) > 0 {
		return nil, errReferredTo(old, refused)
	}
	return orphaned, err
}

// errReferredTo is the error of a deletion that references prevent.
func errReferredTo(old trivet.Record, by []store.Referrer) error {
	first := by[0]
	if i := slices.IndexFunc(by, func(r store.Referrer) bool { return r.From == "Head" }); i >= 0 {
		first = by[i] // it has to go before all others
	}
	head := first.Record.Header()
	name := strings.ToLower(string(first.From)) + " " + head.ShortName()
	text := fmt.Sprintf("%s refers to it (%s)", name, first.Field)
	if len(by) > 1 {
		text += fmt.Sprintf(", and %d more", len(by)-1)
	}
	info, _ := trivet.LookupKind(string(first.From)) // the kinds of references exist
	hint := "delete that first: trivet delete " + name
	if head.Name != head.ShortName() {
		hint = fmt.Sprintf("delete that first: trivet delete -p %s %s %s", head.Project,
			strings.ToLower(string(first.From)), head.Name)
	}
	switch {
	case first.OnDelete == trivet.DeletionForced:
		hint = "change or delete that first, or leave it without: --force"
	case first.From == "Head":
		hint = "first: trivet head demote " + head.Name
	case info.ReadOnly:
		hint = "wait until that has ended, or end it"
	}
	return &trivet.Error{Op: "delete", Kind: old.Header().Kind, Name: old.Header().ShortName(), Hint: hint,
		Err: fmt.Errorf("%w: %s", trivet.ErrConflict, text)}
}

// listCommand returns the command that lists the records of a kind beside the one with a full name.
func listCommand(kind trivet.Kind, full string) string {
	info, _ := trivet.LookupKind(string(kind))
	text := "trivet get " + info.Plural
	if project, _ := trivet.SplitName(full); project != "" && project != trivet.DefaultProject {
		text += " -p " + project
	}
	return text
}

// admitReferences requires that the records exist that a new or changed record must refer to. The store compares
// that they do.
func (c *change) admitReferences() error {
	for _, ref := range trivet.ReferencesFrom(c.info.Kind) {
		if !ref.Required {
			continue
		}
		for _, t := range ref.Targets(c.new) {
			if err := c.needRecord(ref.Field, ref.To, t.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// needRecord requires that the record exists that a field names.
func (c *change) needRecord(field string, kind trivet.Kind, full string) error {
	_, err := c.tx.Record(kind, full)
	if errors.Is(err, trivet.ErrNotFound) {
		return &trivet.FieldError{Field: field, Problem: fmt.Sprintf("names %s %s, which does not exist; those that do: %s",
			strings.ToLower(string(kind)), trivet.ShortName(full), listCommand(kind, full))}
	}
	return err
}
