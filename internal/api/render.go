package api

import (
	"cmp"
	"errors"
	"net/http"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/store"
)

// rendering is a request for the run that a provision would start. Its transaction applies the template and claims the
// machine as requests for that would, and is not committed.
type rendering struct {
	*Handler
	caller    *caller
	provision *trivet.Provision
	template  *trivet.Template // nil: the stored one
	preview   *fleet.Preview
	mask      *runMask
}

func (h *Handler) render(w http.ResponseWriter, r *http.Request, c *caller) error {
	rn, err := h.readRendering(w, r, c)
	if err != nil {
		return err
	}
	if rn.preview, err = h.Fleet.Preview(rn.provision); err != nil {
		return err
	}
	var run *trivet.Workflow
	_, err = h.group.Update(r.Context(), func(tx *store.Tx) error {
		var err error
		if run, err = rn.render(tx); err != nil {
			return err
		}
		return errDryRun
	})
	if !errors.Is(err, errDryRun) {
		return rn.mask.hideInError(rn.provision.Spec.Template, err)
	}
	out := trivet.Rendered{Waits: rn.preview.Waits, Address: rn.preview.Address()}
	if rn.provision.Spec.Head != nil {
		out.Plan = fleet.HeadPlan(rn.provision, run)
	}
	if err := rn.mask.hideInRun(r.Context(), &run.Spec); err != nil {
		return err
	}
	out.Workflow = *run
	return respond(w, http.StatusOK, out)
}

// readRendering reads the records of a request as they are read where they are written.
func (h *Handler) readRendering(w http.ResponseWriter, r *http.Request, c *caller) (*rendering, error) {
	project, err := projectOf(r)
	if err != nil {
		return nil, err
	}
	body, err := h.readBody(w, r, maxRecordBody)
	if err != nil {
		return nil, err
	}
	var req trivet.RenderRequest
	if err := apitypes.DecodeStrict(body, &req); err != nil {
		return nil, err
	}
	p := &req.Provision
	if err := h.adopt(project, p); err != nil {
		return nil, err
	}
	if p.Spec.Machine == "" {
		return nil, &trivet.FieldError{Field: "spec.machine", Problem: "is missing; name the machine to render for"}
	}
	if err := trivet.ValidateWritten(p); err != nil {
		return nil, &trivet.Error{Op: "render", Kind: "Provision", Name: p.Name, Err: err}
	}
	if err := admitSeed(nil, p); err != nil {
		return nil, &trivet.Error{Op: "render", Kind: "Provision", Name: p.Name, Err: err}
	}
	if t := req.Template; t != nil {
		if err := h.adopt(cmp.Or(t.Project, project), t); err != nil {
			return nil, err
		}
	}
	return &rendering{Handler: h, caller: c, provision: p, template: req.Template, mask: newRunMask(p.Spec.Parameters)},
		nil
}

// adopt checks what identifies a record of a request for something else, and clears what only Trivet writes.
func (h *Handler) adopt(project string, r trivet.Record) error {
	info, err := trivet.LookupKind(string(trivet.KindOf(r)))
	if err != nil {
		return err
	}
	if err := info.ValidateProject(project); err != nil {
		return err
	}
	return (&writer{h: h, info: info, project: project}).adopt(r)
}

// render is called within the transaction, and may run again. What the admission of a provision finds in its template,
// the claim finds with its place.
func (rn *rendering) render(tx *store.Tx) (*trivet.Workflow, error) {
	if err := rn.applyTemplate(tx); err != nil {
		return nil, err
	}
	p, err := clone(rn.provision)
	if err != nil {
		return nil, err
	}
	c, err := rn.changeIn(tx, nil, p)
	if err != nil {
		return nil, err
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	if err := rn.admitHead(c, nil, p); err != nil {
		return nil, err
	}
	t, err := rn.Fleet.Templates.In(tx).Get(trivet.Resolve(p.Project, p.Spec.Template))
	if err != nil {
		return nil, err
	}
	rn.mask.addDefaults(t)
	return rn.preview.Run(tx, p)
}

// applyTemplate writes the template of the request, if any, into the transaction.
func (rn *rendering) applyTemplate(tx *store.Tx) error {
	if rn.template == nil {
		return nil
	}
	next, err := clone(rn.template)
	if err != nil {
		return err
	}
	old, err := tx.Record(next.Kind, next.FullName())
	if errors.Is(err, trivet.ErrNotFound) {
		if err := rn.admitIn(tx, nil, next); err != nil {
			return err
		}
		return tx.CreateRecord(next)
	}
	if err != nil {
		return err
	}
	keepStatus(next, old)
	if err := rn.admitIn(tx, old, next); err != nil {
		return err
	}
	return tx.PutRecord(next)
}

// admitIn admits a record as a request that writes it does.
func (rn *rendering) admitIn(tx *store.Tx, old, next trivet.Record) error {
	c, err := rn.changeIn(tx, old, next)
	if err != nil {
		return err
	}
	return rn.admit(c)
}

func (rn *rendering) changeIn(tx *store.Tx, old, next trivet.Record) (*change, error) {
	info, err := trivet.LookupKind(string(trivet.KindOf(next)))
	return &change{held: heldBlobs{}, caller: rn.caller, tx: tx, info: info, old: old, new: next}, err
}
