package provider

import (
	"context"
	"errors"

	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// Create issues the token. The state has it before its record is read, which may fail.
func (r *tokenResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var m tokenModel
	if resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...); resp.Diagnostics.HasError() {
		return
	}
	expires, err := parseTime(m.Expires)
	var issued trivet.TokenResponse
	if err == nil {
		issued, err = r.client.IssueToken(uninterrupted(ctx), trivet.TokenRequest{Account: m.Account.ValueString(),
			Expires: expires, Never: m.Never.ValueBool()})
	}
	if err != nil {
		resp.Diagnostics.Append(problem("issue a token of account "+m.Account.ValueString(), err))
		return
	}
	m.Name, m.Value, m.UID = types.StringValue(issued.Name), types.StringValue(issued.Token), types.StringValue("")
	m.setExpires(issued.Expires)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
	stored, err := client.Of[trivet.Token](r.client).Get(ctx, issued.Name)
	if err != nil {
		resp.Diagnostics.Append(problem("read token "+issued.Name, err))
		return
	}
	m.UID = types.StringValue(stored.UID)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// Read finds out whether the token still exists. Its value is never read.
func (r *tokenResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var m tokenModel
	if resp.Diagnostics.Append(req.State.Get(ctx, &m)...); resp.Diagnostics.HasError() {
		return
	}
	stored, err := client.Of[trivet.Token](r.client).Get(ctx, m.Name.ValueString())
	if isNotFound(err) {
		resp.State.RemoveResource(ctx)
		return
	}
	if err == nil && stored.Spec.Join != "" {
		err = errors.New("it lets a head join and belongs to no account, so Terraform does not manage it")
	}
	if err != nil {
		resp.Diagnostics.Append(problem("read token "+m.Name.ValueString(), err))
		return
	}
	m.Account, m.UID = types.StringValue(stored.Spec.Account), types.StringValue(stored.UID)
	m.Never = types.BoolValue(stored.Spec.Expires.IsZero())
	m.setExpires(stored.Spec.Expires)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// Update writes nothing: what changes is how the expiry is written.
func (r *tokenResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	resp.State.Raw = req.Plan.Raw
}

// Delete revokes the token.
func (r *tokenResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var m tokenModel
	if resp.Diagnostics.Append(req.State.Get(ctx, &m)...); resp.Diagnostics.HasError() {
		return
	}
	d := deletion{kind: r.client.Kind(info("Token")), name: m.Name.ValueString(), uid: m.UID.ValueString()}
	if err := d.run(ctx, deleteTimeout); err != nil {
		resp.Diagnostics.Append(problem("revoke token "+m.Name.ValueString(), err))
	}
}
