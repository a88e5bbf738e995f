package provider

import (
	"context"
	"encoding/json"

	"github.com/hashicorp/terraform-plugin-framework/resource"
)

// Create creates the record. The state is saved before it waits, so that Terraform knows a record that has failed.
func (r *record) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	m, diags := load(ctx, &r.kind, req.Plan)
	config, more := load(ctx, &r.kind, req.Config)
	diags.Append(more...)
	if resp.Diagnostics.Append(diags...); diags.HasError() {
		return
	}
	d, err := r.create(ctx, m, stringsOf(config.data))
	if err != nil {
		resp.Diagnostics.Append(problem(r.op("create", m), err))
		return
	}
	m.adopt(d)
	if resp.Diagnostics.Append(m.save(ctx, &r.kind, &resp.State)...); resp.Diagnostics.HasError() {
		return
	}
	if !r.runs || !m.wait.ValueBool() {
		return
	}
	limit, diags := m.timeouts.Create(ctx, createTimeout)
	if resp.Diagnostics.Append(diags...); diags.HasError() {
		return
	}
	if d, err = r.await(ctx, m, limit); err != nil {
		resp.Diagnostics.Append(problem(r.op("complete", m), err))
	}
	if d != nil {
		m.adopt(d)
		resp.Diagnostics.Append(m.save(ctx, &r.kind, &resp.State)...)
	}
}

func (r *record) create(ctx context.Context, m *model, data map[string]string) (*document, error) {
	spec, err := parseSpec(&r.kind, m.spec.ValueString())
	if err != nil {
		return nil, err
	}
	if len(data) > 0 {
		spec["data"] = data
	}
	body, err := json.Marshal(written{Name: m.name.ValueString(), Labels: stringsOf(m.labels),
		Annotations: stringsOf(m.annotations), Spec: overlay(nil, nil, spec).(map[string]any)})
	if err != nil {
		return nil, err
	}
	created, err := r.records(m).CreateRaw(uninterrupted(ctx), m.name.ValueString(), body)
	if err != nil {
		return nil, err
	}
	return documentOf(created)
}

// read reads the record; nil: it does not exist.
func (r *record) read(ctx context.Context, m *model) (*document, error) {
	raw, err := r.records(m).Raw(ctx, m.name.ValueString())
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseDocument(raw)
}

// uninterrupted returns a context for a write: one that was interrupted may have been made, and Terraform would not
// know the record. The client bounds how long it takes.
func uninterrupted(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }
