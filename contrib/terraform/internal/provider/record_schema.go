package provider

import (
	"context"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/trivet-project/trivet"
)

func (r *record) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{Description: r.about, Attributes: r.common()}
	all := resp.Schema.Attributes
	if r.isInProject() {
		all["project"] = schema.StringAttribute{Optional: true, Computed: true,
			Default: stringdefault.StaticString(trivet.DefaultProject), Description: "Project of the record.",
			PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()}}
	}
	if r.hasStatus() {
		all["status"] = schema.StringAttribute{Computed: true, Description: "Status as JSON, for jsondecode."}
	}
	if r.secretData {
		all["data"] = schema.MapAttribute{Optional: true, Sensitive: true, WriteOnly: true,
			ElementType: types.StringType, Description: "Values by key. They are sent to the cluster and stored neither in " +
				"the state nor in a plan. A plan compares them with the stored ones, at the head. Null: they stay as they are."}
	}
	if r.runs {
		all["wait"] = schema.BoolAttribute{Optional: true, Computed: true, Default: booldefault.StaticBool(true),
			Description: "Whether a creation waits until the provision has succeeded or failed. Default: true."}
	}
	all["timeouts"] = timeouts.Attributes(ctx, timeouts.Opts{Create: r.runs, Delete: true,
		CreateDescription: "How long a creation waits, such as 30m. Default: 2h.",
		DeleteDescription: "How long a deletion is tried while other records refer to the record. Default: 1m."})
}

// common returns the attributes of all kinds.
func (r *record) common() map[string]schema.Attribute {
	keep := []planmodifier.String{stringplanmodifier.UseStateForUnknown()}
	return map[string]schema.Attribute{
		"name": schema.StringAttribute{Required: true, Description: "Name, unique within its kind and project.",
			PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()}},
		"labels": schema.MapAttribute{Optional: true, ElementType: types.StringType,
			Description: "Labels. Those that are not listed here are left alone."},
		"annotations": schema.MapAttribute{Optional: true, ElementType: types.StringType,
			Description: "Annotations. Those that are not listed here are left alone."},
		"spec": schema.StringAttribute{Required: true, Description: "The record's spec as YAML or JSON: yamlencode({...}). " +
			"Fields that it does not set are left alone. They are listed by trivet explain " +
			strings.ToLower(string(r.info.Kind)) + "."},
		"uid": schema.StringAttribute{Computed: true, PlanModifiers: keep,
			Description: "Distinguishes the record from an earlier or later one of its name."},
		"revision":   schema.Int64Attribute{Computed: true, Description: "The store's revision of the last change."},
		"generation": schema.Int64Attribute{Computed: true, Description: "Counts the changes of spec."},
	}
}
