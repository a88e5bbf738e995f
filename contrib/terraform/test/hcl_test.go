package test

import (
	"encoding/json"
	"maps"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	ctyyaml "github.com/zclconf/go-cty-yaml"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
	ctyjson "github.com/zclconf/go-cty/cty/json"
)

// module is a file of a configuration: variables, resources in the order of their references, and outputs.
type module struct {
	*core
	blocks hclsyntax.Blocks
	vars   map[string]cty.Value
	types  map[string]map[string]cty.Value // resources by type and name, as references have them
	all    []*instance                     // in the order of the file
}

// newModule parses a file. The variables are those of a command line.
func (c *core) newModule(path string, vars map[string]string) *module {
	c.Helper()
	file, diags := hclparse.NewParser().ParseHCLFile(path)
	if diags.HasErrors() {
		c.Fatal(diags)
	}
	m := &module{core: c, blocks: file.Body.(*hclsyntax.Body).Blocks, vars: map[string]cty.Value{},
		types: map[string]map[string]cty.Value{}}
	for name, value := range vars {
		m.vars[name] = cty.StringVal(value)
	}
	m.each("variable", func(b *hclsyntax.Block) {
		if _, set := m.vars[b.Labels[0]]; !set {
			m.vars[b.Labels[0]] = m.eval(b.Body.Attributes["default"].Expr)
		}
	})
	return m
}

func (m *module) each(kind string, do func(b *hclsyntax.Block)) {
	for _, b := range m.blocks {
		if b.Type == kind {
			do(b)
		}
	}
}

// eval evaluates an expression with what is known so far.
func (m *module) eval(e hcl.Expression) cty.Value {
	m.Helper()
	names := map[string]cty.Value{"var": cty.ObjectVal(m.vars)}
	for kind, resources := range m.types {
		names[kind] = cty.ObjectVal(resources)
	}
	v, diags := e.Value(&hcl.EvalContext{Variables: names, Functions: map[string]function.Function{
		"yamlencode": ctyyaml.YAMLEncodeFunc, "jsonencode": stdlib.JSONEncodeFunc, "jsondecode": stdlib.JSONDecodeFunc}})
	if diags.HasErrors() {
		m.Fatal(diags)
	}
	return v
}

// config returns the configuration of a resource.
func (m *module) config(b *hclsyntax.Block) object {
	m.Helper()
	out := object{}
	for name, a := range b.Body.Attributes {
		if name == "depends_on" {
			continue
		}
		text, err := json.Marshal(ctyjson.SimpleJSONValue{Value: m.eval(a.Expr)})
		var value any
		if err == nil {
			err = json.Unmarshal(text, &value)
		}
		if err != nil {
			m.Fatal(err)
		}
		out[name] = value
	}
	return out
}

// apply applies all resources in their order, and returns what was done, by address.
func (m *module) apply() map[string]string {
	m.Helper()
	done, known := map[string]string{}, map[string]*instance{}
	for _, i := range m.all {
		known[i.address] = i
	}
	m.each("resource", func(b *hclsyntax.Block) {
		kind, name := b.Labels[0], b.Labels[1]
		i := known[kind+"."+name]
		if i == nil {
			i = m.resource(kind)
			i.address = kind + "." + name
			m.all = append(m.all, i)
		}
		config := m.config(b)
		action, text := i.apply(config)
		if text != "" {
			m.Fatalf("%s: %s", i.address, text)
		}
		i.mustBeDone(config)
		done[i.address] = action
		m.refer(kind, name, i)
	})
	return done
}

// refer makes a resource known to references.
func (m *module) refer(kind, name string, i *instance) {
	attributes := map[string]cty.Value{}
	for name, v := range fields(i.state) {
		attributes[name] = cty.NullVal(cty.DynamicPseudoType)
		elements := map[string]tftypes.Value{}
		switch {
		case v.IsNull():
		case v.Type().Is(tftypes.String):
			attributes[name] = cty.StringVal(text(v))
		case v.Type().Is(tftypes.Map{}) && v.As(&elements) == nil:
			all := map[string]cty.Value{}
			for key, element := range elements {
				all[key] = cty.StringVal(text(element))
			}
			attributes[name] = cty.MapVal(all)
		}
	}
	of := maps.Clone(m.types[kind])
	if of == nil {
		of = map[string]cty.Value{}
	}
	of[name] = cty.ObjectVal(attributes)
	m.types[kind] = of
}

// destroy destroys all resources, the last ones first.
func (m *module) destroy() {
	m.Helper()
	for n := len(m.all) - 1; n >= 0; n-- {
		m.all[n].mustDestroy()
	}
}

// output returns an output.
func (m *module) output(t *testing.T, name string) (value string) {
	t.Helper()
	m.each("output", func(b *hclsyntax.Block) {
		if b.Labels[0] == name {
			value = m.eval(b.Body.Attributes["value"].Expr).AsString()
		}
	})
	return value
}
