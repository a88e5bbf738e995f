package provider

import (
	"context"
	"maps"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// ModifyPlan plans no change where the record has what the configuration sets, however that is written.
func (r *record) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if req.Plan.Raw.IsNull() || req.State.Raw.IsNull() {
		return
	}
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
	c := &comparison{kind: &r.kind, plan: plan, state: state, imported: mark != nil}
	if err := c.run(); err != nil {
		resp.Diagnostics.Append(problem(r.op("plan", state), err))
		return
	}
	if c.replaced {
		resp.RequiresReplace = append(resp.RequiresReplace, path.Root("spec"))
	}
	changed, err := c.changed, error(nil)
	if !changed && !config.data.IsNull() {
		if changed, err = r.dataDiffers(ctx, state, config.data); err != nil {
			resp.Diagnostics.Append(problem(r.op("compare the data of", state), err))
			return
		}
	}
	if !changed {
		resp.Plan.Raw = req.State.Raw.Copy()
		return
	}
	plan.status, plan.revision, plan.generation = types.StringUnknown(), types.Int64Unknown(), types.Int64Unknown()
	for name, value := range plan.attributes(&r.kind) {
		if name != "data" { // null in every plan
			resp.Diagnostics.Append(resp.Plan.SetAttribute(ctx, path.Root(name), value)...)
		}
	}
}

// comparison compares a plan with the state.
type comparison struct {
	*kind
	plan, state *model
	// imported: the state has all fields of the record. Those that the configuration does not set are no difference.
	imported bool

	changed, replaced bool
}

// run finds out whether anything changed, other than how it is written.
func (c *comparison) run() error {
	p, s := c.plan, c.state
	isEqualSpec, err := c.compareSpec()
	c.changed = !(isEqualSpec && c.isSame(p.labels, s.labels) && c.isSame(p.annotations, s.annotations) &&
		p.name.Equal(s.name) && p.project.Equal(s.project) && p.wait.Equal(s.wait) && p.timeouts.Equal(s.timeouts))
	return err
}

// compareSpec reports whether the record has the spec of the plan.
func (c *comparison) compareSpec() (isSame bool, err error) {
	if c.plan.spec.IsUnknown() {
		return false, nil
	}
	next, err := parseSpec(c.kind, c.plan.spec.ValueString())
	if err != nil {
		return false, err
	}
	has, err := readSpec(c.kind, c.state.spec.ValueString())
	if err != nil {
		return false, err
	}
	if c.imported {
		has = restrictObject(has, next)
	}
	isSame = isEqual(has, next)
	c.replaced = c.replaces != nil && !isSame && c.replaces(has, next)
	return isSame, nil
}

// isSame reports whether the record has the labels or annotations of the plan.
func (c *comparison) isSame(plan, state types.Map) bool {
	if !c.imported || !isKnown(plan) {
		return plan.Equal(state)
	}
	set := stringsOf(plan)
	return maps.Equal(restrictStrings(stringsOf(state), set), set)
}

// isKnown reports whether a map and all of its values are known.
func isKnown(m types.Map) bool {
	for _, value := range m.Elements() {
		if value.IsUnknown() {
			return false
		}
	}
	return !m.IsUnknown()
}
