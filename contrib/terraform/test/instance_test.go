package test

import (
	"context"
	"encoding/json"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// instance is one resource in the state.
type instance struct {
	*core
	kind    string
	address string // in a file
	schema  *tfprotov6.Schema
	state   tftypes.Value
	private []byte
}

// resource returns a resource that does not exist yet.
func (c *core) resource(kind string) *instance {
	c.Helper()
	schema := c.schema.ResourceSchemas[kind]
	if schema == nil {
		c.Fatalf("no resource %s", kind)
	}
	return &instance{core: c, kind: kind, schema: schema, state: tftypes.NewValue(schema.ValueType(), nil)}
}

func (i *instance) objectType() tftypes.Object { return i.schema.ValueType().(tftypes.Object) }

func (i *instance) null() tftypes.Value { return tftypes.NewValue(i.objectType(), nil) }

// exists reports whether the resource is in the state.
func (i *instance) exists() bool { return !i.state.IsNull() }

// get returns an attribute of the state.
func (i *instance) get(name string) string { return text(fields(i.state)[name]) }

// has returns the JSON of an attribute of the state.
func (i *instance) json(name string) (v map[string]any) {
	i.Helper()
	if err := json.Unmarshal([]byte(i.get(name)), &v); err != nil {
		i.Fatalf("%s of %s: %v", name, i.kind, err)
	}
	return v
}

// validate returns the errors of a configuration.
func (i *instance) validate(config object) string {
	i.Helper()
	resp, err := i.server.ValidateResourceConfig(i.ctx, &tfprotov6.ValidateResourceConfigRequest{TypeName: i.kind,
		Config:             i.encode(config.value(i.objectType())),
		ClientCapabilities: &tfprotov6.ValidateResourceConfigClientCapabilities{WriteOnlyAttributesAllowed: true}})
	i.must(err, nil)
	return i.errors(resp.Diagnostics)
}

// read refreshes the state.
func (i *instance) read() string {
	i.Helper()
	if !i.exists() {
		return ""
	}
	resp, err := i.server.ReadResource(i.ctx, &tfprotov6.ReadResourceRequest{TypeName: i.kind,
		CurrentState: i.encode(i.state), Private: i.private})
	i.must(err, nil)
	if text := i.errors(resp.Diagnostics); text != "" {
		return text
	}
	i.state, i.private = i.decode(resp.NewState, i.objectType()), resp.Private
	i.checkState()
	return ""
}

// importID imports a resource, and reads it as Terraform does.
func (i *instance) importID(id string) string {
	i.Helper()
	resp, err := i.server.ImportResourceState(i.ctx, &tfprotov6.ImportResourceStateRequest{TypeName: i.kind, ID: id})
	i.must(err, nil)
	if text := i.errors(resp.Diagnostics); text != "" {
		return text
	}
	if len(resp.ImportedResources) != 1 {
		i.Fatalf("%d resources imported", len(resp.ImportedResources))
	}
	found := resp.ImportedResources[0]
	i.state, i.private = i.decode(found.State, i.objectType()), found.Private
	return i.read()
}

// change writes a planned state. The state is what the provider returns, also with errors.
func (i *instance) change(ctx context.Context, p *plan) string {
	i.Helper()
	resp, err := i.server.ApplyResourceChange(ctx, &tfprotov6.ApplyResourceChangeRequest{TypeName: i.kind,
		PriorState: i.encode(p.prior), PlannedState: i.encode(p.planned), Config: i.encode(p.config),
		PlannedPrivate: p.private})
	i.must(err, nil)
	text := i.errors(resp.Diagnostics)
	i.state, i.private = i.decode(resp.NewState, i.objectType()), resp.Private
	if text == "" {
		p.checkApplied(i)
		i.checkState()
	}
	return text
}

// checkState fails the test if the state has what no state may have.
func (i *instance) checkState() {
	i.Helper()
	for _, a := range i.schema.Block.Attributes {
		if v := fields(i.state)[a.Name]; i.exists() && (!v.IsFullyKnown() || a.WriteOnly && !v.IsNull()) {
			i.Errorf("%s has %s = %s in its state", i.kind, a.Name, v)
		}
	}
}
