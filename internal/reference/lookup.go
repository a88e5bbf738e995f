package reference

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
)

// elementMark is how a path may say that a field has many elements: "nics[0].mac", "nics[].mac", "limits.*.timeout".
var elementMark = regexp.MustCompile(`\[[^\]]*\]|\.\*`)

// Lookup returns what a path such as "machine.spec.bmc" or "action.image" is, and its path as it is written. A kind may
// have any of its names.
func Lookup(path string) (string, Field, error) {
	parts := strings.Split(elementMark.ReplaceAllString(path, ""), ".")
	at, err := topic(parts[0])
	if err != nil {
		return "", Field{}, err
	}
	root, written := at, at.Name
	for _, name := range parts[1:] {
		below, ok := named(at.Fields, name)
		if !ok {
			return "", Field{}, fmt.Errorf("%w: %s has no field %q%s", trivet.ErrInvalid, written, name,
				near(root, at, name))
		}
		at, written = below, written+"."+below.Name
	}
	return written, at, nil
}

func topic(name string) (Field, error) {
	all := Topics()
	if strings.EqualFold(name, ActionTopic) || strings.EqualFold(name, ActionTopic+"s") {
		return all[len(all)-1], nil
	}
	info, err := trivet.LookupKind(name)
	if err != nil {
		return Field{}, fmt.Errorf("%w, and %s", err, ActionTopic)
	}
	f, ok := named(all, string(info.Kind))
	if !ok {
		return Field{}, fmt.Errorf("%w: there is no description of %s", trivet.ErrNotFound, info.Plural)
	}
	return f, nil
}

// named returns the field with a name, in upper or lower case.
func named(fields []Field, name string) (Field, bool) {
	i := slices.IndexFunc(fields, func(f Field) bool { return strings.EqualFold(f.Name, name) })
	if i < 0 {
		return Field{}, false
	}
	return fields[i], true
}

// maxNear bounds the places that are suggested.
const maxNear = 3

// near suggests what was meant by a name that a field does not have: fields of that name elsewhere in the record, or
// one that is spelled like it.
func near(root, at Field, name string) string {
	if len(at.Fields) == 0 {
		return fmt.Sprintf("; it is a %s", at.Type)
	}
	if places := find(root, name, ""); len(places) > 0 {
		return "; did you mean " + strings.Join(places[:min(len(places), maxNear)], " or ") + "?"
	}
	known := map[string]bool{}
	for _, f := range at.Fields {
		known[f.Name] = true
	}
	return apitypes.Suggest(name, known)
}

// find returns the paths of all fields of a name, what is less deep first.
func find(f Field, name, path string) (all []string) {
	path = strings.TrimPrefix(path+"."+f.Name, ".")
	for _, below := range f.Fields {
		if strings.EqualFold(below.Name, name) {
			all = append(all, path+"."+below.Name)
		}
	}
	for _, below := range f.Fields {
		all = append(all, find(below, name, path)...)
	}
	slices.SortStableFunc(all, func(x, y string) int { return strings.Count(x, ".") - strings.Count(y, ".") })
	return all
}
