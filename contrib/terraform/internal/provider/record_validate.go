package provider

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/trivet-project/trivet"
)

// ValidateConfig checks what is known of a configuration by the rules that a head checks a record by itself with.
func (r *record) ValidateConfig(ctx context.Context, req resource.ValidateConfigRequest,
	resp *resource.ValidateConfigResponse) {
	m, diags := load(ctx, &r.kind, req.Config)
	if resp.Diagnostics.Append(diags...); diags.HasError() {
		return
	}
	check := func(attribute string, err error) {
		if err != nil {
			resp.Diagnostics.AddAttributeError(path.Root(attribute), "Invalid "+attribute, printable(err.Error()))
		}
	}
	if !m.name.IsUnknown() {
		check("name", trivet.ValidateName(m.name.ValueString()))
	}
	if !m.project.IsUnknown() && !m.project.IsNull() {
		check("project", trivet.ValidateProject(m.project.ValueString()))
	}
	check("labels", validateStrings(m.labels, trivet.ValidateLabels))
	check("annotations", validateStrings(m.annotations, trivet.ValidateAnnotations))
	if !m.spec.IsUnknown() {
		check("spec", r.validateSpec(m))
	}
}

func validateStrings(m types.Map, validate func(map[string]string) error) error {
	for key, value := range m.Elements() {
		if value.IsNull() {
			return &trivet.FieldError{Field: key, Problem: "is null; leave it out, or write a text"}
		}
	}
	if m.IsUnknown() {
		return nil
	}
	return validate(stringsOf(m))
}

// placeholder is the name of a record whose name is not known, or wrong, which is reported separately.
const placeholder = "name"

// validateSpec validates the record that a spec results in.
func (r *record) validateSpec(m *model) error {
	spec, err := parseSpec(&r.kind, m.spec.ValueString())
	if err != nil {
		return err
	}
	rec := r.info.New()
	text, err := json.Marshal(written{Name: placeholder, Spec: withoutNil(spec).(map[string]any)})
	if err == nil {
		err = json.Unmarshal(text, rec)
	}
	return errors.Join(err, trivet.ValidateWritten(rec))
}
