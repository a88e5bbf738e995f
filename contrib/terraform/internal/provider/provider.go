// Package provider is the Terraform provider of Trivet: records as resources. All kinds but tokens share one resource,
// which a table describes (kinds.go).
package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/trivet-project/trivet/client"
)

// Address is the address of the provider in a registry.
const Address = "registry.terraform.io/trivet-project/trivet"

// New returns what creates the provider of a version.
func New(version string) func() provider.Provider {
	return func() provider.Provider { return &trivetProvider{version: version} }
}

type trivetProvider struct{ version string }

func (p *trivetProvider) Metadata(_ context.Context, _ provider.MetadataRequest, resp *provider.MetadataResponse) {
	resp.TypeName, resp.Version = "trivet", p.version
}

func (p *trivetProvider) Schema(_ context.Context, _ provider.SchemaRequest, resp *provider.SchemaResponse) {
	resp.Schema = schema.Schema{
		Description: "Records of a Trivet cluster. The cluster is given by server, trust and token, each of which may come " +
			"from TRIVET_ENDPOINTS, TRIVET_TRUST and TRIVET_TOKEN; or by a context of the CLI's configuration file.",
		Attributes: map[string]schema.Attribute{
			"server": schema.ListAttribute{Optional: true, ElementType: types.StringType,
				Description: "URLs of heads, such as https://10.0.0.5:7480. One is enough; with all, any of them may fail."},
			"trust": schema.StringAttribute{Optional: true,
				Description: "Pins of the cluster's CAs (sha256:...), separated by commas, or certificates in PEM."},
			"token": schema.StringAttribute{Optional: true, Sensitive: true, Description: "API token."},
			"context": schema.StringAttribute{Optional: true,
				Description: "Context of the CLI's configuration file, which trivet login writes. Excludes the others."},
		},
	}
}

// Configure creates the client. It does not connect.
func (p *trivetProvider) Configure(ctx context.Context, req provider.ConfigureRequest,
	resp *provider.ConfigureResponse) {
	s, diags := readSettings(ctx, req.Config)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	cfg, err := s.resolve()
	if err == nil {
		cfg.UserAgent, cfg.Fresh = "terraform-provider-trivet/"+p.version, true
		cfg.OnTrust = s.onTrust(ctx, cfg.Trust)
		var c *client.Client
		if c, err = client.New(cfg); err == nil {
			resp.ResourceData = c
			return
		}
	}
	resp.Diagnostics.Append(problem("configure the provider", err))
}

func (p *trivetProvider) DataSources(context.Context) []func() datasource.DataSource { return nil }

func (p *trivetProvider) Resources(context.Context) (all []func() resource.Resource) {
	for _, k := range kinds {
		all = append(all, func() resource.Resource { return newRecord(k) })
	}
	return append(all, func() resource.Resource { return &tokenResource{} })
}
