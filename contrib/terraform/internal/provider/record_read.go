package provider

import (
	"context"
	"errors"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/trivet-project/trivet"
)

// Read copies what the record has now. A record that was deleted outside of Terraform is removed from the state.
func (r *record) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	m, diags := load(ctx, &r.kind, req.State)
	if resp.Diagnostics.Append(diags...); diags.HasError() {
		return
	}
	d, err := r.read(ctx, m)
	switch {
	case err != nil:
		resp.Diagnostics.Append(problem(r.op("read", m), err))
		return
	case d == nil:
		resp.State.RemoveResource(ctx)
		return
	case !m.uid.IsNull() && m.uid.ValueString() != d.UID:
		resp.Diagnostics.AddWarning(strings.ToLower(string(r.info.Kind))+" "+m.full()+" is another one now",
			"It was deleted and created again outside of Terraform. Terraform manages the new one.")
	}
	if err := m.refresh(&r.kind, d); err != nil {
		resp.Diagnostics.Append(problem(r.op("read", m), err))
		return
	}
	resp.Diagnostics.Append(m.save(ctx, &r.kind, &resp.State)...)
}

// importedKey marks, in the private state, a record that was imported and not updated since. Its state has all fields,
// also those that the configuration does not set.
const importedKey = "imported"

// ImportState reads the name: NAME, or PROJECT/NAME.
func (r *record) ImportState(ctx context.Context, req resource.ImportStateRequest,
	resp *resource.ImportStateResponse) {
	project, name := trivet.SplitName(req.ID)
	if r.isInProject() && project == "" {
		project = trivet.DefaultProject
	}
	if err := errors.Join(r.info.ValidateProject(project), trivet.ValidateName(name)); err != nil {
		resp.Diagnostics.AddError("Cannot import "+printable(req.ID), printable(err.Error())+"\n\nHint: write NAME, or "+
			"PROJECT/NAME of a kind that belongs to projects")
		return
	}
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("name"), name)...)
	if r.isInProject() {
		resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("project"), project)...)
	}
	if r.runs {
		resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("wait"), types.BoolValue(true))...)
	}
	resp.Diagnostics.Append(resp.Private.SetKey(ctx, importedKey, []byte("true"))...)
}

func isNotFound(err error) bool { return errors.Is(err, trivet.ErrNotFound) }
