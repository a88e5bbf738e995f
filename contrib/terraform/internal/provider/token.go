package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// tokenResource is an API token. It is issued by Trivet, so it is not a record that a configuration writes.
type tokenResource struct{ client *client.Client }

var (
	_ resource.ResourceWithConfigure      = &tokenResource{}
	_ resource.ResourceWithImportState    = &tokenResource{}
	_ resource.ResourceWithValidateConfig = &tokenResource{}
)

// tokenModel is the attributes of a token.
type tokenModel struct {
	Account types.String `tfsdk:"account"`
	Expires types.String `tfsdk:"expires"`
	Never   types.Bool   `tfsdk:"never"`
	Name    types.String `tfsdk:"name"`
	UID     types.String `tfsdk:"uid"`
	Value   types.String `tfsdk:"value"`
}

func (r *tokenResource) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_token"
}

func (r *tokenResource) Configure(_ context.Context, req resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	r.client, _ = req.ProviderData.(*client.Client)
}

func (r *tokenResource) ValidateConfig(ctx context.Context, req resource.ValidateConfigRequest,
	resp *resource.ValidateConfigResponse) {
	var m tokenModel
	if resp.Diagnostics.Append(req.Config.Get(ctx, &m)...); resp.Diagnostics.HasError() {
		return
	}
	if m.Expires.IsNull() || m.Expires.IsUnknown() {
		return
	}
	if _, err := parseTime(m.Expires); err != nil {
		resp.Diagnostics.AddAttributeError(path.Root("expires"), "Invalid expires", err.Error())
	}
	if m.Never.ValueBool() {
		resp.Diagnostics.AddAttributeError(path.Root("never"), "Invalid never", "It excludes expires; set one of them.")
	}
}

// ImportState reads the ID of a token, whose value stays unknown to Terraform.
func (r *tokenResource) ImportState(ctx context.Context, req resource.ImportStateRequest,
	resp *resource.ImportStateResponse) {
	if err := trivet.ValidateName(req.ID); err != nil {
		resp.Diagnostics.AddError("Cannot import "+printable(req.ID), printable(err.Error())+
			"\n\nHint: write the ID of a token, as trivet get tokens shows it")
		return
	}
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("name"), req.ID)...)
	resp.Diagnostics.AddWarning("The value of token "+req.ID+" cannot be read", "The cluster has a hash of it only. "+
		"Terraform manages the token, and its attribute value is null.")
}
