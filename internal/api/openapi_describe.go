package api

import (
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/goccy/go-yaml"

	"github.com/trivet-project/trivet/internal/reference"
)

// describe gives the schemas what the reference of records and actions has: descriptions, the values that texts may
// have, defaults, and the arguments of actions with their types.
func (d document) describe() {
	doc := reference.Read()
	for _, t := range doc.Types {
		if s := d.Components.Schemas.Map()[t.Name]; s != nil {
			s.Description = t.Description
			d.describeFields(s, t.Fields)
		}
	}
	for _, k := range doc.Kinds {
		if s := d.Components.Schemas.Map()[k.Name]; s != nil {
			s.Description, s.Examples = k.Description, exampleOf(doc.Examples[strings.ToLower(k.Name)])
			d.describeFields(s, slices.Concat(doc.Meta, k.Fields))
		}
	}
	d.addActions()
}

// exampleOf returns an example as it is in JSON; none where it is only a part of a record.
func exampleOf(example string) []any {
	var record map[string]any
	if strings.HasSuffix(example, "# ...\n") || yaml.Unmarshal([]byte(example), &record) != nil || record == nil {
		return nil
	}
	return []any{record}
}

func (d document) describeFields(s *huma.Schema, fields []reference.Field) {
	for _, f := range fields {
		p := s.Properties[f.Name]
		if p == nil {
			continue
		}
		p.Description, p.Default = f.Description, defaultOf(f)
		below := d.element(p)
		if f.Values != nil {
			below.Enum = enum(f)
		}
		d.describeFields(below, f.Fields)
	}
}

// element is the schema of what a field holds one or many of.
func (d document) element(s *huma.Schema) *huma.Schema {
	if s.Ref != "" {
		return d.Components.Schemas.SchemaFromRef(s.Ref)
	}
	if s.Items != nil {
		return d.element(s.Items)
	}
	if each, ok := s.AdditionalProperties.(*huma.Schema); ok {
		return d.element(each)
	}
	return s
}

func enum(f reference.Field) (all []any) {
	for _, v := range f.Values {
		all = append(all, v.Value)
	}
	return all
}
