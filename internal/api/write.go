package api

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
	"github.com/trivet-project/trivet/internal/store"
)

// maxRecordBody bounds a request that writes one record, in bytes.
const maxRecordBody = 1 << 20

// writer is a request that writes a record.
type writer struct {
	h    *Handler
	c    *caller
	info trivet.KindInfo
	// project and name are those of the record; project is empty for a record of the cluster.
	project, name string
	body          []byte
	dryRun        bool
	held          heldBlobs
	force         bool // a deletion may leave references without a target, an apply may overwrite fields of others
	// revision is what If-Match asks for; 0: nothing.
	revision int64
}

// errDryRun ends a transaction that was only tried.
var errDryRun = errors.New("dry run")

func (h *Handler) newWriter(w http.ResponseWriter, r *http.Request, c *caller, info trivet.KindInfo) (*writer, error) {
	wr := &writer{held: heldBlobs{}, h: h, c: c, info: info, project: r.PathValue("project"), name: r.PathValue("name"),
		dryRun: r.URL.Query().Get("dryRun") != "", force: r.URL.Query().Get("force") != ""}
	if match := r.Header.Get("If-Match"); match != "" {
		var err error
		if wr.revision, err = strconv.ParseInt(strings.Trim(match, `"`), 10, 64); err != nil || wr.revision < 1 {
			return nil, &trivet.FieldError{Field: "If-Match", Problem: "must be a revision"}
		}
	}
	if err := info.ValidateProject(wr.project); err != nil {
		return nil, err
	}
	if wr.name != "" {
		if err := trivet.ValidateName(wr.name); err != nil {
			return nil, err
		}
	}
	var err error
	wr.body, err = h.readBody(w, r, maxRecordBody)
	return wr, err
}

func (wr *writer) fullName() string  { return trivet.FullName(wr.project, wr.name) }
func (wr *writer) shortName() string { return trivet.ShortName(wr.fullName()) }

// update runs the transaction of a request and returns the record after it, or as it would be in a dry run.
func (wr *writer) update(r *http.Request, do func(tx *store.Tx) error) (json.RawMessage, error) {
	var preview json.RawMessage
	err := wr.h.findBlobs(r.Context(), wr.held, func() error {
		_, err := wr.h.group.Update(r.Context(), func(tx *store.Tx) error {
			if err := do(tx); err != nil || !wr.dryRun {
				return err
			}
			var err error
			if preview, _, err = tx.Raw(wr.info.Kind, wr.fullName()); err != nil && !errors.Is(err, trivet.ErrNotFound) {
				return err
			}
			return errDryRun
		})
		return err
	})
	if errors.Is(err, errDryRun) {
		return shown(wr.info.Kind, preview), nil
	}
	if err != nil {
		return nil, wr.named(err)
	}
	raw, err := wr.h.Fleet.Store.Get(wr.info.Kind, wr.fullName())
	if err != nil {
		return nil, err // deleted in the meantime
	}
	return shown(wr.info.Kind, raw.JSON()), nil
}

// named adds the record to an error that does not name one.
func (wr *writer) named(err error) error {
	var detailed *trivet.Error
	if errors.As(err, &detailed) || wr.name == "" {
		return err
	}
	return &trivet.Error{Op: "write", Kind: wr.info.Kind, Name: wr.shortName(), Err: err}
}

// read decodes the record of a body strictly and clears what only Trivet writes.
func (wr *writer) read() (trivet.Record, error) {
	rec := wr.info.New()
	if err := apitypes.DecodeStrict(wr.body, rec); err != nil {
		return nil, err
	}
	return rec, wr.adopt(rec)
}

// adopt checks what identifies a record of a request, and clears what only Trivet writes.
func (wr *writer) adopt(rec trivet.Record) error {
	head := rec.Header()
	if head.Kind != "" && head.Kind != wr.info.Kind {
		return &trivet.FieldError{Field: "kind", Problem: fmt.Sprintf("is %s; this URL is for %s records",
			head.Kind, wr.info.Kind)}
	}
	if wr.name == "" {
		wr.name = head.Name
	}
	if head.Name != wr.name && head.Name != "" {
		return &trivet.FieldError{Field: "name",
			Problem: fmt.Sprintf("is %q, in the URL %q; %s", head.Name, wr.name, notRenamed(wr.info.Kind))}
	}
	if err := wr.checkProject(head.Project); err != nil {
		return err
	}
	if status := reflect.ValueOf(rec).Elem().FieldByName("Status"); status.IsValid() {
		status.SetZero()
	}
	head.Kind, head.Project, head.Name, head.Revision = wr.info.Kind, wr.project, wr.name, 0
	head.Managed, head.Creator = nil, ""
	return validateNotes(head)
}

// validateNotes validates what people write into the Meta of a record, besides its name.
func validateNotes(head *trivet.Meta) error {
	return errors.Join(trivet.ValidateLabels(head.Labels), trivet.ValidateAnnotations(head.Annotations))
}

// checkProject compares the project that a record names, if any, with that of the URL.
func (wr *writer) checkProject(project string) error {
	switch {
	case project == "" || project == wr.project:
		return nil
	case wr.project == "":
		return wr.info.ValidateProject(project)
	}
	return &trivet.FieldError{Field: "project", Problem: fmt.Sprintf(
		"is %.80q, in the URL %q; a record cannot be moved to another project", project, wr.project)}
}

var keyForm = regexp.MustCompile(`^[0-9a-f]{32}$`)

// create creates a record. The idempotency key of the request is its UID.
func (h *Handler) create(w http.ResponseWriter, r *http.Request, c *caller, info trivet.KindInfo) error {
	wr, err := h.newWriter(w, r, c, info)
	if err != nil {
		return err
	}
	rec, err := wr.read()
	if err != nil {
		return err
	}
	rec.Header().UID = rand.Text()
	if key := r.Header.Get(trivet.HeaderIdempotencyKey); keyForm.MatchString(key) {
		rec.Header().UID = key
	}
	created, err := wr.update(r, func(tx *store.Tx) error {
		next, err := clone(rec) // the function may run again
		if err != nil {
			return err
		}
		if err := h.admit(&change{held: wr.held, caller: c, tx: tx, info: info, new: next}); err != nil {
			return err
		}
		return tx.CreateRecord(next)
	})
	if err != nil {
		return err
	}
	return respond(w, http.StatusCreated, created)
}

// replace sets labels, annotations and spec. Changes of status do not conflict with it: it compares the generation that
// the request's record has, if any. If nothing would change, it succeeds whatever the generation, so a request may be
// repeated. If-Match is strict.
func (h *Handler) replace(w http.ResponseWriter, r *http.Request, c *caller, info trivet.KindInfo) error {
	wr, err := h.newWriter(w, r, c, info)
	if err != nil {
		return err
	}
	rec, err := wr.read()
	if err != nil {
		return err
	}
	now, err := wr.update(r, func(tx *store.Tx) error {
		old, err := tx.Record(info.Kind, wr.fullName())
		if err != nil {
			return err
		}
		return wr.replace(tx, old, rec)
	})
	if err != nil {
		return err
	}
	return respond(w, http.StatusOK, now)
}

func (wr *writer) replace(tx *store.Tx, old, rec trivet.Record) error {
	next, err := clone(rec)
	if err != nil {
		return err
	}
	keepStatus(next, old)
	if err := wr.matches(old, 0); err != nil || same(old, next) {
		return err
	}
	if err := wr.h.admit(&change{held: wr.held, caller: wr.c, tx: tx, info: wr.info, old: old, new: next}); err != nil ||
		same(old, next) {
		return err
	}
	if err := wr.matches(old, rec.Header().Generation); err != nil {
		return err
	}
	if next.Header().Managed, err = changed(old, next); err != nil {
		return err
	}
	return tx.PutRecord(next)
}

// matches compares the generation and revision of the request with the stored ones.
func (wr *writer) matches(old trivet.Record, generation int64) error {
	is := old.Header()
	switch {
	case generation != 0 && generation != is.Generation:
		return &trivet.Error{Op: "update", Kind: wr.info.Kind, Name: wr.shortName(),
			Hint: "read it again and make your change there",
			Err: fmt.Errorf("%w: your copy is generation %d; the record is now %d", trivet.ErrConflict, generation,
				is.Generation)}
	case wr.revision != 0 && wr.revision != is.Revision:
		return &trivet.Error{Op: "update", Kind: wr.info.Kind, Name: wr.shortName(),
			Hint: "read it again and make your change there",
			Err: fmt.Errorf("%w: your copy is revision %d; the record is now %d", trivet.ErrConflict, wr.revision,
				is.Revision)}
	}
	return nil
}

// patch changes labels, annotations and spec by a merge patch over the stored JSON, so that what neither writer nor
// head knows stays.
func (h *Handler) patch(w http.ResponseWriter, r *http.Request, c *caller, info trivet.KindInfo) error {
	wr, err := h.newWriter(w, r, c, info)
	if err != nil {
		return err
	}
	switch media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); media {
	case trivet.MediaMergePatch:
	case trivet.MediaApplyPatch:
		return wr.apply(w, r)
	default:
		return &trivet.FieldError{Field: "Content-Type",
			Problem: "must be " + trivet.MediaMergePatch + " or " + trivet.MediaApplyPatch}
	}
	if err := checkPatch(wr.body); err != nil {
		return err
	}
	now, err := wr.update(r, func(tx *store.Tx) error { return wr.applyPatch(tx) })
	if err != nil {
		return err
	}
	return respond(w, http.StatusOK, now)
}

// checkPatch allows changes of labels, annotations and spec only. Kind, project and name may be present, as many
// programs send them.
func checkPatch(patch []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(patch, &fields); err != nil {
		return fmt.Errorf("merge patch: %w: %w", trivet.ErrInvalid, err)
	}
	for name := range fields {
		switch name {
		case "labels", "annotations", "spec", "kind", "project", "name":
		case "status":
			return &trivet.FieldError{Field: name, Problem: "is written by Trivet only"}
		default:
			return &trivet.FieldError{Field: name, Problem: "cannot be patched; labels, annotations and spec can"}
		}
	}
	return nil
}

func (wr *writer) applyPatch(tx *store.Tx) error {
	old, err := tx.Record(wr.info.Kind, wr.fullName())
	if err != nil {
		return err
	}
	if err := wr.matches(old, 0); err != nil { // also where the patch changes nothing
		return err
	}
	stored, _, err := tx.Raw(wr.info.Kind, wr.fullName())
	if err != nil {
		return err
	}
	patched, err := wr.merge(tx, old, stored, wr.body)
	if err != nil || apitypes.Equal(stored, patched) {
		return err
	}
	if len(old.Header().Managed) > 0 {
		if patched, err = wr.withChanged(old, patched); err != nil {
			return err
		}
	}
	return tx.PutRaw(wr.info.Kind, wr.fullName(), patched)
}

// merge returns a stored record changed by a merge patch, and by its admission.
func (wr *writer) merge(tx *store.Tx, old trivet.Record, stored, patch []byte) ([]byte, error) {
	patched, err := apitypes.ApplyMergePatch(stored, patch)
	if err != nil {
		return nil, err
	}
	next, err := wr.patched(patched)
	if err != nil {
		return nil, err
	}
	before, err := json.Marshal(next)
	if err != nil {
		return nil, err
	}
	if err := wr.h.admit(&change{held: wr.held, caller: wr.c, tx: tx, info: wr.info, old: old, new: next}); err != nil {
		return nil, err
	}
	admitted, err := trivet.MergePatch(before, next) // what the admission changed, such as sealed values
	if err != nil {
		return nil, err
	}
	return apitypes.ApplyMergePatch(patched, admitted)
}

// patched decodes the record that a patch results in.
func (wr *writer) patched(doc []byte) (trivet.Record, error) {
	next := wr.info.New()
	if err := json.Unmarshal(doc, next); err != nil {
		return nil, fmt.Errorf("merge patch: %w: %w", trivet.ErrInvalid, err)
	}
	head := next.Header()
	if head.Name != wr.name || head.Kind != wr.info.Kind {
		return nil, &trivet.FieldError{Field: "name", Problem: notRenamed(wr.info.Kind)}
	}
	if err := wr.checkProject(head.Project); err != nil {
		return nil, err
	}
	head.Project = wr.project // what the record refers to is looked up there, and its values are sealed for there
	return next, validateNotes(head)
}

// notRenamed says that a write does not rename a record of a kind, and what does.
func notRenamed(kind trivet.Kind) string {
	if kind == "Machine" {
		return "a record cannot be renamed by a write of it; to rename a machine: trivet rename machine NAME NEWNAME"
	}
	return "a record cannot be renamed"
}

// clone copies a record through its JSON, which also normalizes empty lists as the store does.
func clone[R trivet.Record](r R) (R, error) {
	out := reflect.New(reflect.TypeOf(r).Elem()).Interface().(R)
	text, err := json.Marshal(r)
	if err == nil {
		err = json.Unmarshal(text, out)
	}
	return out, err
}

// keepStatus copies what only Trivet writes from the stored record: status, revision, identity.
func keepStatus(next, old trivet.Record) {
	head := next.Header()
	labels, annotations := head.Labels, head.Annotations
	*head = *old.Header()
	head.Labels, head.Annotations = labels, annotations
	if status := reflect.ValueOf(next).Elem().FieldByName("Status"); status.IsValid() {
		status.Set(reflect.ValueOf(old).Elem().FieldByName("Status"))
	}
}

func specOf(r trivet.Record) reflect.Value { return reflect.ValueOf(r).Elem().FieldByName("Spec") }

// same reports whether two records have the same labels, annotations and spec.
func same(a, b trivet.Record) bool {
	x, y := a.Header(), b.Header()
	return maps.Equal(x.Labels, y.Labels) && maps.Equal(x.Annotations, y.Annotations) &&
		reflect.DeepEqual(specOf(a).Interface(), specOf(b).Interface())
}
