package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/trivet-project/trivet"
)

// errChanged: somebody changed the record since Terraform read it.
var errChanged = fmt.Errorf("%w: the record was changed since Terraform has read it", trivet.ErrConflict)

// maxConflicts bounds how often an update is repeated because the status of the record changed meanwhile.
const maxConflicts = 8

// Update writes what the configuration changes, and leaves the rest as it is. The state's generation decides whether
// the record changed since the plan; the request carries the revision that this update has read.
func (r *record) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	plan, diags := load(ctx, &r.kind, req.Plan)
	state, more := load(ctx, &r.kind, req.State)
	diags.Append(more...)
	config, more := load(ctx, &r.kind, req.Config)
	diags.Append(more...)
	mark, more := req.Private.GetKey(ctx, importedKey)
	diags.Append(more...)
	if resp.Diagnostics.Append(diags...); diags.HasError() {
		return
	}
	u := &update{record: r, plan: plan, state: state}
	if !config.data.IsNull() {
		u.data = stringsOf(config.data)
	}
	if mark != nil {
		u.keepUnset = true
	}
	d, err := u.apply(ctx)
	if err != nil {
		resp.Diagnostics.Append(problem(r.op("update", state), err))
		return
	}
	plan.adopt(d)
	resp.Diagnostics.Append(resp.Private.SetKey(ctx, importedKey, nil)...)
	resp.Diagnostics.Append(plan.save(ctx, &r.kind, &resp.State)...)
}

// update is a change of a record.
type update struct {
	*record
	plan, state *model
	data        map[string]string // of a secret; nil: they stay
	keepUnset   bool              // what the state has and the plan does not is not deleted
	dryRun      bool
}

// apply writes the change. A change of the status alone is no conflict.
func (u *update) apply(ctx context.Context) (d *document, err error) {
	for range maxConflicts {
		if d, err = u.try(ctx); !errors.Is(err, trivet.ErrConflict) || errors.Is(err, errChanged) {
			return d, err
		}
		if now, readErr := u.read(ctx, u.state); readErr != nil || now == nil || now.Revision == d.Revision {
			return nil, errors.Join(err, readErr) // another conflict than that of the revision
		}
	}
	return nil, err
}

// try writes the change of the record as it is now, which it returns if that fails.
func (u *update) try(ctx context.Context) (*document, error) {
	now, err := u.read(ctx, u.state)
	if err != nil {
		return nil, err
	}
	if now == nil {
		return nil, fmt.Errorf("%w; %w: it was deleted", trivet.ErrNotFound, errChanged)
	}
	if !u.dryRun && u.isChanged(now) {
		return now, errChanged
	}
	patch, err := u.patch(now)
	if err != nil || string(patch) == "{}" {
		return now, err
	}
	stored, err := u.records(u.state).DryRun(u.dryRun).Patch(uninterrupted(ctx), now.Name, patch, now.Revision)
	if err != nil {
		return now, err
	}
	return documentOf(stored)
}

// isChanged reports whether spec, or labels or annotations of the state, changed since the state was read.
func (u *update) isChanged(now *document) bool {
	labels, annotations := stringsOf(u.state.labels), stringsOf(u.state.annotations)
	return now.UID != u.state.uid.ValueString() || now.Generation != u.state.generation.ValueInt64() ||
		!maps.Equal(restrictStrings(now.Labels, labels), labels) ||
		!maps.Equal(restrictStrings(now.Annotations, annotations), annotations)
}

// patch returns the merge patch of the change.
func (u *update) patch(now *document) ([]byte, error) {
	before, err := json.Marshal(written{now.Name, now.Labels, now.Annotations, now.Spec})
	if err != nil {
		return nil, err
	}
	next, err := parseSpec(&u.kind, u.plan.spec.ValueString())
	if err != nil {
		return nil, err
	}
	former, err := readSpec(&u.kind, u.state.spec.ValueString())
	if err != nil {
		return nil, err
	}
	labels, annotations := stringsOf(u.state.labels), stringsOf(u.state.annotations)
	if u.keepUnset {
		former, labels, annotations = restrictObject(former, next), nil, nil
	}
	after := written{Name: now.Name, Labels: mergeStrings(now.Labels, labels, stringsOf(u.plan.labels)),
		Annotations: mergeStrings(now.Annotations, annotations, stringsOf(u.plan.annotations)),
		Spec:        overlay(now.Spec, former, next).(map[string]any)}
	if u.data != nil {
		after.Spec["data"] = u.data
	}
	return trivet.MergePatch(before, after)
}
