// Package reference has the fields of all records and the arguments of all actions, with their types, values and
// descriptions, for programs that run without the sources. internal/docsgen writes records.json from the comments, as
// it writes docs/reference.
package reference

import (
	_ "embed"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/actionspec"
)

// Document is the content of records.json.
type Document struct {
	Meta  []Field `json:"meta"`  // the fields of every record
	Kinds []Field `json:"kinds"` // named by their kinds, with what is below spec and status
	// Types are the other types of the API, by the names of their Go types; with their fields, and without what is
	// below these, where no record has them.
	Types []Field `json:"types"`
	// Examples are records of YAML, or the parts of them that show what a path is, by paths as Lookup returns them. They
	// are cut from docs/examples.
	Examples map[string]string `json:"examples"`
}

// Field describes a record, a field of it, an action or an argument.
type Field struct {
	Name        string  `json:"name"`
	Type        string  `json:"type,omitempty"` // as people know it from JSON: "list of string"
	Required    bool    `json:"required,omitempty"`
	Default     string  `json:"default,omitempty"`
	Description string  `json:"description,omitempty"`
	Example     string  `json:"example,omitempty"` // the shortest one that has it, in a record of YAML
	Values      []Value `json:"values,omitempty"`  // all that it may have; none: any of the type
	Fields      []Field `json:"fields,omitempty"`  // below it: of an object, or of each element
}

// Value is a text that a field may have.
type Value struct {
	Value       string `json:"value"`
	Description string `json:"description,omitempty"`
}

//go:embed records.json
var recordsJSON []byte

// Read returns the embedded document, which a test of docsgen compares with the sources.
func Read() (d Document) {
	if err := json.Unmarshal(recordsJSON, &d); err != nil {
		panic("internal/reference/records.json: " + err.Error())
	}
	return d
}

// records is the document for what needs it more than once.
var records = sync.OnceValue(Read)

// ActionTopic is what paths of actions begin with: "action.image.grow".
const ActionTopic = "action"

// Topics returns what is described: a field for each kind, named as in a path, and one for all actions. The list is
// shared.
func Topics() []Field { return topics() }

var topics = sync.OnceValue(func() (all []Field) {
	for _, k := range records().Kinds {
		all = append(all, withExamples(kind(k), ""))
	}
	return append(all, withExamples(Actions(), ""))
})

// withExamples returns a copy of a field with the examples of its path, and those of what is below it.
func withExamples(f Field, above string) Field {
	path := strings.TrimPrefix(above+"."+f.Name, ".")
	f.Example, f.Fields = records().Examples[path], slices.Clone(f.Fields)
	for i := range f.Fields {
		f.Fields[i] = withExamples(f.Fields[i], path)
	}
	return f
}

// kind adds the fields of every record to those of a kind.
func kind(k Field) Field {
	var fields []Field
	for _, f := range records().Meta {
		if f.Name != "project" || trivet.ScopeOf(trivet.Kind(k.Name)) == trivet.ScopeProject {
			fields = append(fields, f)
		}
	}
	k.Name, k.Fields = strings.ToLower(k.Name), append(fields, k.Fields...)
	return k
}

// Actions describes the actions, whose descriptions are part of the program: a field for each.
func Actions() Field {
	all := Field{Name: ActionTopic, Type: "object",
		Description: "The built-in actions of a template: `use` names one, `with` has its arguments."}
	for _, a := range actionspec.Actions() {
		all.Fields = append(all.Fields, Field{Name: a.Name, Type: "object", Description: a.Description,
			Fields: arguments(a.Args)})
	}
	return all
}

func arguments(args []actionspec.Arg) (all []Field) {
	for _, a := range args {
		f := Field{Name: a.Name, Type: a.Type, Required: a.Required, Default: a.Default, Description: a.Description,
			Fields: arguments(a.Args)}
		for _, v := range a.Values {
			f.Values = append(f.Values, Value{Value: v})
		}
		all = append(all, f)
	}
	return all
}
