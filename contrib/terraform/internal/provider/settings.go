package provider

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// settings is the configuration of the provider.
type settings struct {
	server                []string
	trust, token, context string
}

// readSettings reads the configuration. A value that is not known yet, as it is of a resource that does not exist, is
// refused: without a cluster, there is no plan.
func readSettings(ctx context.Context, cfg tfsdk.Config) (s settings, diags diag.Diagnostics) {
	var server types.List
	diags.Append(cfg.GetAttribute(ctx, path.Root("server"), &server)...)
	known := map[string]bool{"server": !server.IsUnknown()}
	for name, into := range map[string]*string{"trust": &s.trust, "token": &s.token, "context": &s.context} {
		var value types.String
		diags.Append(cfg.GetAttribute(ctx, path.Root(name), &value)...)
		known[name], *into = !value.IsUnknown(), value.ValueString()
	}
	for _, name := range []string{"server", "trust", "token", "context"} {
		if !known[name] {
			diags.AddAttributeError(path.Root(name), "The provider's "+name+" is not known yet",
				"It depends on a resource that does not exist yet. Apply that first, with -target, or set TRIVET_ENDPOINTS, "+
					"TRIVET_TRUST and TRIVET_TOKEN in the environment.")
		}
	}
	if !diags.HasError() && !server.IsNull() {
		diags.Append(server.ElementsAs(ctx, &s.server, false)...)
	}
	return s, diags
}

// explicit reports whether the configuration names the cluster itself.
func (s *settings) explicit() bool { return len(s.server) > 0 || s.trust != "" || s.token != "" }

const setAll = "in the provider block set server, trust and token, or context"

// resolve returns the configuration of the client. What the provider's block leaves out is from the environment; a
// configuration file is read only if the block has none of server, trust and token, so that a token of the file is not
// sent to a server of the block.
func (s *settings) resolve() (client.Config, error) {
	if !s.explicit() {
		cfg, err := client.Environment(s.context)
		if err != nil {
			return cfg, fmt.Errorf("%w; or %s", err, setAll)
		}
		return cfg, s.complete(cfg)
	}
	if s.context != "" {
		return client.Config{}, fmt.Errorf("%w: context excludes server, trust and token; remove it or them",
			trivet.ErrInvalid)
	}
	cfg := client.Config{Endpoints: s.server, Trust: cmp.Or(s.trust, os.Getenv("TRIVET_TRUST")),
		Token: cmp.Or(s.token, os.Getenv("TRIVET_TOKEN"))}
	if env := os.Getenv("TRIVET_ENDPOINTS"); len(cfg.Endpoints) == 0 && env != "" {
		cfg.Endpoints = strings.Split(env, ",")
	}
	return cfg, s.complete(cfg)
}

// complete returns an error that names what is missing.
func (s *settings) complete(cfg client.Config) error {
	var missing []string
	for _, part := range []struct {
		name, env string
		ok        bool
	}{
		{"server", "TRIVET_ENDPOINTS", len(cfg.Endpoints) > 0},
		{"trust", "TRIVET_TRUST", cfg.Trust != ""},
		{"token", "TRIVET_TOKEN", cfg.Token != ""},
	} {
		if !part.ok {
			missing = append(missing, part.name+" (or "+part.env+")")
		}
	}
	if missing == nil {
		return nil
	}
	return fmt.Errorf("%w: %s is not set; %s", trivet.ErrInvalid, strings.Join(missing, ", "), setAll)
}

// onTrust returns what stores new pins of the cluster, when its CA is replaced, as the CLI does.
func (s *settings) onTrust(ctx context.Context, former string) func(trust string) {
	ctx = context.WithoutCancel(ctx)
	return func(trust string) {
		err := errors.ErrUnsupported
		if !s.explicit() {
			err = client.SaveTrust(s.context, former, trust)
		}
		if err != nil {
			tflog.Warn(ctx, "the cluster's CA is being replaced: set trust to the new pins", map[string]any{"trust": trust})
			return
		}
		former = trust
	}
}
