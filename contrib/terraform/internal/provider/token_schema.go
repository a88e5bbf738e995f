package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/boolplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
)

func (r *tokenResource) Schema(_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	keep := []planmodifier.String{stringplanmodifier.UseStateForUnknown()}
	resp.Schema = schema.Schema{
		Description: "An API token of an account. Its destruction revokes it. A token cannot be changed: one with other " +
			"attributes replaces it.",
		Attributes: map[string]schema.Attribute{
			"account": schema.StringAttribute{Required: true, Description: "Account that the token authenticates.",
				PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()}},
			"expires": schema.StringAttribute{Optional: true, Computed: true,
				Description: "When it expires, such as 2030-01-31T00:00:00Z. Default: after spec.tokenLifetime of the site. " +
					"Empty: never.",
				PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown(),
					stringplanmodifier.RequiresReplaceIf(otherTime, "Another time.", "Another time.")}},
			"never": schema.BoolAttribute{Optional: true, Computed: true, Default: booldefault.StaticBool(false),
				Description:   "The token does not expire.",
				PlanModifiers: []planmodifier.Bool{boolplanmodifier.RequiresReplace()}},
			"name": schema.StringAttribute{Computed: true, PlanModifiers: keep, Description: "ID of the token."},
			"uid":  schema.StringAttribute{Computed: true, PlanModifiers: keep, Description: "UID of its record."},
			"value": schema.StringAttribute{Computed: true, Sensitive: true, PlanModifiers: keep,
				Description: "The token. It is in the state, and cannot be read again; null where the token was imported."},
		},
	}
}

// otherTime replaces a token for another time of expiry that the configuration sets.
func otherTime(_ context.Context, req planmodifier.StringRequest,
	resp *stringplanmodifier.RequiresReplaceIfFuncResponse) {
	resp.RequiresReplace = !req.ConfigValue.IsNull() && !sameTime(req.PlanValue, req.StateValue)
}
