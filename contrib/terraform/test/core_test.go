// Package test drives the provider against a real head as Terraform does: through protocol 6, in this process.
package test

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"github.com/hashicorp/terraform-plugin-log/tflogtest"
	"github.com/hashicorp/terraform-plugin-log/tfsdklogtest"

	"github.com/trivet-project/trivet/contrib/terraform/internal/provider"
)

// core is the part of Terraform that talks to a provider.
type core struct {
	*testing.T
	server tfprotov6.ProviderServer
	schema *tfprotov6.GetProviderSchemaResponse
	ctx    context.Context // has the provider's logs written to log
	log    *output         // all logs and diagnostics
}

// output collects text of several goroutines.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// newCore starts a provider that is not configured yet.
func newCore(t *testing.T) *core {
	t.Helper()
	server, err := providerserver.NewProtocol6WithError(provider.New("test")())()
	if err != nil {
		t.Fatal(err)
	}
	c := &core{T: t, server: server, log: &output{}}
	c.ctx = tflogtest.RootLogger(tfsdklogtest.RootLogger(t.Context(), c.log), c.log)
	c.schema, err = server.GetProviderSchema(c.ctx, &tfprotov6.GetProviderSchemaRequest{})
	c.must(err, c.schema.Diagnostics)
	return c
}

// configured starts a provider with a configuration, which must be accepted.
func configured(t *testing.T, config object) *core {
	t.Helper()
	c := newCore(t)
	if text := c.configure(config); text != "" {
		t.Fatal(text)
	}
	return c
}

// configure validates a configuration of the provider and configures it. It returns the errors.
func (c *core) configure(config object) string {
	c.Helper()
	value := c.encode(config.value(c.schema.Provider.ValueType().(tftypes.Object)))
	valid, err := c.server.ValidateProviderConfig(c.ctx, &tfprotov6.ValidateProviderConfigRequest{Config: value})
	if c.must(err, nil); len(c.errors(valid.Diagnostics)) > 0 {
		return c.errors(valid.Diagnostics)
	}
	resp, err := c.server.ConfigureProvider(c.ctx, &tfprotov6.ConfigureProviderRequest{Config: value,
		TerraformVersion: "1.14.0"})
	c.must(err, nil)
	return c.errors(resp.Diagnostics)
}

// must ends the test on an error of the protocol or a diagnostic.
func (c *core) must(err error, diags []*tfprotov6.Diagnostic) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
	if text := c.errors(diags); text != "" {
		c.Fatal(text)
	}
}

// errors returns the text of the errors among diagnostics. All are logged.
func (c *core) errors(diags []*tfprotov6.Diagnostic) string {
	var errs []string
	for _, d := range diags {
		text := d.Summary + ": " + d.Detail
		_, _ = c.log.Write([]byte(text + "\n"))
		if d.Severity == tfprotov6.DiagnosticSeverityError {
			errs = append(errs, text)
		}
	}
	return strings.Join(errs, "\n")
}

func (c *core) encode(v tftypes.Value) *tfprotov6.DynamicValue {
	c.Helper()
	out, err := tfprotov6.NewDynamicValue(v.Type(), v)
	if err != nil {
		c.Fatal(err)
	}
	return &out
}

func (c *core) decode(v *tfprotov6.DynamicValue, t tftypes.Type) tftypes.Value {
	c.Helper()
	out, err := v.Unmarshal(t)
	if err != nil {
		c.Fatal(err)
	}
	return out
}
