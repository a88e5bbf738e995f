package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
	"github.com/trivet-project/trivet/internal/reference"
)

// schema is what the tests read of one.
type schema struct {
	Ref                  string             `json:"$ref"`
	Description          string             `json:"description"`
	Properties           map[string]*schema `json:"properties"`
	Required             []string           `json:"required"`
	Items                *schema            `json:"items"`
	AdditionalProperties *schema            `json:"additionalProperties"`
	Enum                 []string           `json:"enum"`
	Default              any                `json:"default"`
	Examples             []json.RawMessage  `json:"examples"`
	AnyOf                []*schema          `json:"anyOf"`
	OneOf                []*schema          `json:"oneOf"`
	Discriminator        struct {
		PropertyName string            `json:"propertyName"`
		Mapping      map[string]string `json:"mapping"`
	} `json:"discriminator"`
}

type schemas map[string]*schema

func publishedSchemas(t *testing.T) schemas {
	t.Helper()
	var doc struct {
		Components struct {
			Schemas schemas `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(newHead(t).handler.OpenAPI(), &doc); err != nil {
		t.Fatal(err)
	}
	return doc.Components.Schemas
}

// element follows references, lists and maps.
func (all schemas) element(s *schema) *schema {
	switch {
	case s == nil:
		return nil
	case s.Ref != "":
		return all[strings.TrimPrefix(s.Ref, "#/components/schemas/")]
	case s.Items != nil:
		return all.element(s.Items)
	case s.AdditionalProperties != nil && (s.AdditionalProperties.Ref != "" || s.AdditionalProperties.Enum != nil):
		return all.element(s.AdditionalProperties)
	}
	return s
}

// Every schema, and every field of one, has a description.
func TestOpenAPIDescribesEveryField(t *testing.T) {
	t.Parallel()
	all := publishedSchemas(t)
	for name, s := range all {
		if s.Description == "" {
			t.Errorf("schema %s has no description", name)
		}
		undescribed(name, s, func(path string) { t.Errorf("%s has no description: comment the field", path) })
	}
}

// undescribed reports the fields without a description, those of the schemas that have no name, too.
func undescribed(path string, s *schema, report func(string)) {
	if s == nil {
		return
	}
	for name, p := range s.Properties {
		if p.Description == "" {
			report(path + "." + name)
		}
		undescribed(path+"."+name, p, report)
	}
	for _, below := range slices.Concat(s.AnyOf, []*schema{s.Items, s.AdditionalProperties}) {
		undescribed(path, below, report)
	}
}

// The schemas of records have all fields, descriptions, values and defaults that trivet explain has.
func TestOpenAPIHasTheReference(t *testing.T) {
	t.Parallel()
	all, values, defaults := publishedSchemas(t), 0, 0
	var compare func(path string, s *schema, fields []reference.Field)
	compare = func(path string, s *schema, fields []reference.Field) {
		for _, f := range fields {
			at := path + "." + f.Name
			if at == "Template.spec.actions.use" || at == "Workflow.spec.actions.use" || s == nil {
				continue // see TestOpenAPIHasTypedActions
			}
			if s.OneOf != nil {
				s = all.element(s.OneOf[0]) // what actions have in common
			}
			p := s.Properties[f.Name]
			if p == nil {
				t.Errorf("%s: no such field in openapi.json", at)
				continue
			}
			below := all.element(p)
			for _, v := range f.Values {
				values++
				if !slices.Contains(below.Enum, v.Value) {
					t.Errorf("%s may be %q; the enum is %q", at, v.Value, below.Enum)
				}
			}
			if f.Default != "" {
				defaults++
			}
			if got := fmt.Sprint(p.Default); f.Default != "" && got != f.Default || f.Default == "" && p.Default != nil {
				t.Errorf("%s has default %s, not %q", at, got, f.Default)
			}
			compare(at, below, f.Fields)
		}
	}
	doc := reference.Read()
	for _, k := range doc.Kinds {
		compare(k.Name, all[k.Name], slices.Concat(doc.Meta, k.Fields))
	}
	if values < 100 || defaults < 20 {
		t.Errorf("the reference has %d values and %d defaults; is it the right one?", values, defaults)
	}
}

// The schemas of kinds have examples, which heads accept.
func TestOpenAPIHasExamples(t *testing.T) {
	t.Parallel()
	all, n := publishedSchemas(t), 0
	for _, k := range trivet.Kinds {
		for _, example := range all[string(k.Kind)].Examples {
			n++
			r := k.New()
			if err := apitypes.DecodeStrict(example, r); err != nil {
				t.Errorf("%s: %v", k.Kind, err)
			} else if err := r.Validate(); err != nil {
				t.Errorf("%s: %v", k.Kind, err)
			}
		}
	}
	if n < 5 {
		t.Errorf("%d kinds have an example", n)
	}
}

// Every action has a schema of its own, by which its arguments have types.
func TestOpenAPIHasTypedActions(t *testing.T) {
	t.Parallel()
	all := publishedSchemas(t)
	action := all["Action"]
	if action.Discriminator.PropertyName != "use" || len(action.OneOf) != len(trivet.ActionUses) {
		t.Fatalf("actions are one of %d schemas by %q", len(action.OneOf), action.Discriminator.PropertyName)
	}
	for _, a := range reference.Actions().Fields {
		of := all.element(&schema{Ref: action.Discriminator.Mapping[a.Name]})
		if of == nil || !slices.Equal(of.Properties["use"].Enum, []string{a.Name}) || of.Properties["timeout"] == nil {
			t.Errorf("action %s has no schema", a.Name)
			continue
		}
		arguments := all.element(of.Properties["with"])
		want, required := []string{}, []string(nil)
		for _, arg := range a.Fields {
			want = append(want, arg.Name)
			if arg.Required {
				required = append(required, arg.Name)
			}
			p := arguments.Properties[arg.Name]
			if got := fmt.Sprint(p.Default); arg.Default != "" && got != arg.Default {
				t.Errorf("%s.%s has default %s, not %s", a.Name, arg.Name, got, arg.Default)
			}
			if len(arg.Values) > 0 && len(p.AnyOf[0].Enum) != len(arg.Values) {
				t.Errorf("%s.%s may be %v, in the reference %v", a.Name, arg.Name, p.AnyOf[0].Enum, arg.Values)
			}
		}
		if got := slices.Sorted(maps.Keys(arguments.Properties)); !slices.Equal(got, slices.Sorted(slices.Values(want))) ||
			!slices.Equal(arguments.Required, required) {
			t.Errorf("action %s: arguments %q, required %q; want %q, %q", a.Name, got, arguments.Required, want, required)
		}
	}
}
