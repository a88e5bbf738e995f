package api

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/trivet-project/trivet/internal/reference"
)

// actionSchema is the schema of the Go type of actions, whose arguments have no type there.
const actionSchema = "Action"

// diskSchema is the schema of the arguments that select a disk.
const diskSchema = "DiskSelector"

// addActions makes an action one of several schemas, one for each use, whose arguments have types.
func (d document) addActions() {
	schemas := d.Components.Schemas.Map()
	common := schemas[actionSchema]
	one := &huma.Schema{Description: common.Description,
		Discriminator: &huma.Discriminator{PropertyName: "use", Mapping: map[string]string{}}}
	for _, a := range reference.Actions().Fields {
		name := typeName(a.Name)
		arguments := d.object(a.Fields)
		arguments.Description = "The arguments of action " + a.Name + "."
		schemas[name+"Arguments"] = arguments
		schemas[name+actionSchema] = ofUse(common, a, &huma.Schema{Ref: ref(name + "Arguments"),
			Description: common.Properties["with"].Description})
		one.OneOf = append(one.OneOf, &huma.Schema{Ref: ref(name + actionSchema)})
		one.Discriminator.Mapping[a.Name] = ref(name + actionSchema)
	}
	schemas[actionSchema] = one
}

func ref(name string) string { return schemaPrefix + name }

// typeName is the name of an action as that of a type: TestDisk.
func typeName(use string) (name string) {
	for part := range strings.SplitSeq(use, "-") {
		name += strings.ToUpper(part[:1]) + part[1:]
	}
	return name
}

// ofUse returns the schema of the actions of one use.
func ofUse(common *huma.Schema, a reference.Field, with *huma.Schema) *huma.Schema {
	s := &huma.Schema{Type: huma.TypeObject, Description: a.Description, Required: common.Required,
		Properties: maps.Clone(common.Properties)}
	if slices.ContainsFunc(a.Fields, func(f reference.Field) bool { return f.Required }) {
		s.Required = append(slices.Clone(common.Required), "with")
	}
	use := *common.Properties["use"]
	use.Enum = []any{a.Name}
	s.Properties["use"], s.Properties["with"] = &use, with
	return s
}

// object returns the schema of arguments.
func (d document) object(args []reference.Field) *huma.Schema {
	s := &huma.Schema{Type: huma.TypeObject, Properties: map[string]*huma.Schema{}}
	for _, a := range args {
		p := d.argument(a, a.Type)
		p.Description = a.Description
		p.Default = defaultOf(a)
		s.Properties[a.Name] = p
		if a.Required {
			s.Required = append(s.Required, a.Name)
		}
	}
	return s
}

// argument returns the schema of an argument, or of the elements of one. Numbers and choices may also be texts: they
// are written as Go templates, and the texts of templates are rendered.
func (d document) argument(a reference.Field, of string) *huma.Schema {
	if each, ok := strings.CutPrefix(of, "list of "); ok {
		return &huma.Schema{Type: huma.TypeArray, Items: d.argument(a, each)}
	}
	switch of {
	case "number":
		return orText(&huma.Schema{Type: huma.TypeInteger, Format: "int64"}, `^-?[0-9]+$|\{\{`)
	case "boolean":
		return orText(&huma.Schema{Type: huma.TypeBoolean}, `^(true|false)$|\{\{`)
	case "object", "objects":
		return d.object(a.Fields)
	case "paths or objects":
		return d.pathOr(a.Fields)
	case "path or object":
		if schemas := d.Components.Schemas.Map(); schemas[diskSchema] == nil {
			schemas[diskSchema] = d.pathOr(a.Fields)
			schemas[diskSchema].Description = "A disk: a path, or hints that match exactly one disk."
		}
		return &huma.Schema{Ref: ref(diskSchema)}
	case "map of texts":
		return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: &huma.Schema{Type: huma.TypeString}}
	}
	if a.Values != nil {
		return orText(&huma.Schema{Type: huma.TypeString, Enum: enum(a)}, `\{\{`)
	}
	return &huma.Schema{Type: huma.TypeString}
}

func (d document) pathOr(fields []reference.Field) *huma.Schema {
	return &huma.Schema{AnyOf: []*huma.Schema{{Type: huma.TypeString}, d.object(fields)}}
}

// orText permits a text that matches a pattern instead.
func orText(s *huma.Schema, pattern string) *huma.Schema {
	return &huma.Schema{AnyOf: []*huma.Schema{s, {Type: huma.TypeString, Pattern: pattern}}}
}

// defaultOf returns the default of an argument or field as it is in JSON; nil: it has none.
func defaultOf(arg reference.Field) any {
	switch {
	case arg.Default == "":
		return nil
	case arg.Type == "number" || arg.Type == "integer":
		n, _ := strconv.Atoi(arg.Default) // the reference has it from an int
		return n
	case arg.Type == "boolean":
		return arg.Default == "true"
	}
	return arg.Default
}
