package workflow

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
)

// MaxChangeText bounds the values of a difference, in bytes.
const MaxChangeText = 200

// Differences returns what differs between what two runs install, in the order of the fields' names. show returns a
// value, by the name of its innermost field, as people may see it.
func Differences(was, now *trivet.WorkflowSpec, show func(name string, value any) any) []trivet.RunChange {
	before, after := leaves{}, leaves{}
	before.ofRun(was, func(action string) bool { return now.Action(action) != nil })
	after.ofRun(now, func(string) bool { return true })
	out := []trivet.RunChange{}
	for _, field := range slices.Sorted(maps.Keys(before.and(after))) {
		a, b := before[field], after[field]
		if a.text() == b.text() {
			continue
		}
		out = append(out, trivet.RunChange{Field: field, Was: a.shown(show), Now: b.shown(show)})
	}
	return out
}

// leaf is a value of a run, and the name of its innermost field.
type leaf struct {
	name  string
	value any // nil: it is not set
}

func (l leaf) text() string {
	switch v := l.value.(type) {
	case nil:
		return ""
	case string:
		return v
	}
	raw, _ := json.Marshal(l.value) // it was unmarshalled
	return string(raw)
}

func (l leaf) shown(show func(string, any) any) string {
	text := leaf{l.name, show(l.name, l.value)}.text()
	if len(text) > MaxChangeText {
		return fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(text[:MaxChangeText], ""), len(text))
	}
	return text
}

// leaves are the values of a run that are no objects, by their paths.
type leaves map[string]leaf

func (l leaves) and(other leaves) leaves {
	all := maps.Clone(l)
	maps.Copy(all, other)
	return all
}

// ofRun adds what a run installs, with the fields of the actions that are shown: of one that is left out, the list of
// actions has the name.
func (l leaves) ofRun(spec *trivet.WorkflowSpec, shown func(action string) bool) {
	l.add("actions", "actions", actionNames(spec.Actions))
	for _, a := range spec.Actions {
		if shown(a.Name) {
			path := "actions." + a.Name
			l.addStruct(path, a)
			delete(l, path+".name")
		}
	}
	for _, image := range spec.Images {
		l.add("images."+image.Name, "image", image.Blob.Digest)
	}
	l.addStruct("seed", spec.Seed)
	l.addStruct("disk", spec.Disk)
}

// addStruct adds the fields of a struct as its JSON has them.
func (l leaves) addStruct(path string, v any) {
	raw, _ := json.Marshal(v) // it is stored as JSON
	var fields map[string]any
	_ = json.Unmarshal(raw, &fields)
	l.add(path, path, fields)
}

func (l leaves) add(path, name string, v any) {
	fields, ok := v.(map[string]any)
	if !ok {
		l[path] = leaf{name, v}
		return
	}
	for key, value := range fields {
		l.add(path+"."+key, key, value)
	}
}
