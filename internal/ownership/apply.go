package ownership

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
)

// Direct is the manager of what writes other than applies have changed since an apply.
const Direct = "direct"

// Default is the manager of an apply that names none.
const Default = "apply"

// MaxManagers bounds the managers of one record.
const MaxManagers = 8

// Owners has, by manager, the pointers of its fields, sorted.
type Owners map[string][]string

// ValidateManager returns an error for what cannot be the manager of an apply.
func ValidateManager(name string) error {
	err := trivet.ValidateName(name)
	switch {
	case err != nil || len(name) > 63:
		return &trivet.FieldError{Field: "manager", Problem: fmt.Sprintf(
			"%.64q: use 1 to 63 of a-z, 0-9, '-', '.' and ':', and begin and end with a letter or digit", name)}
	case name == Direct:
		return &trivet.FieldError{Field: "manager", Problem: `"direct" is for writes other than applies`}
	}
	return nil
}

// Patch returns the merge patch of an apply to a record: it sets the fields, and removes those that only this manager
// had. An object that has none left is removed, too, as an empty one may not be valid.
func (o Owners) Patch(manager string, fields []Field, record any) map[string]any {
	patch := map[string]any{}
	keep := setOf(fields)
	for _, p := range o[manager] {
		if !keep.overlaps(p) && len(o.others(manager, p)) == 0 {
			remove(patch, pathOf(p), record, keep)
		}
	}
	for _, f := range fields {
		put(patch, f.Path, f.Value)
	}
	return patch
}

// remove adds the removal of a field, and of what is around it as far as nothing else is in it or is kept.
func remove(patch map[string]any, path []string, record any, keep set) {
	put(patch, path, nil)
	for n := len(path) - 1; n > 1 && !keep.overlaps(pointer(path[:n])); n-- {
		left, _ := valueAt(record, path[:n]).(map[string]any)
		change, _ := valueAt(patch, path[:n]).(map[string]any)
		for key := range left {
			if value, ok := change[key]; !ok || value != nil {
				return
			}
		}
		put(patch, path[:n], nil)
	}
}

func put(patch map[string]any, path []string, value any) {
	for _, key := range path[:len(path)-1] {
		inner, ok := patch[key].(map[string]any)
		if !ok {
			inner = map[string]any{}
			patch[key] = inner
		}
		patch = inner
	}
	patch[path[len(path)-1]] = value
}

// others returns the other managers that have a field, or a part of it, or what it is a part of.
func (o Owners) others(manager, pointer string) (all []string) {
	for _, other := range slices.Sorted(maps.Keys(o)) {
		if other != manager && set(o[other]).overlaps(pointer) {
			all = append(all, other)
		}
	}
	return all
}

// Conflicts returns an error for each field of an apply that other managers have, and that it changes: before and after
// are the record without and with the apply.
func (o Owners) Conflicts(manager string, fields []Field, before, after any) []*trivet.FieldError {
	var all []*trivet.FieldError
	for _, f := range fields {
		if !differs(before, after, f.Path) {
			continue
		}
		if others := o.others(manager, pointer(f.Path)); len(others) > 0 {
			all = append(all, &trivet.FieldError{Field: strings.Join(f.Path, "."), Problem: problem(others)})
		}
	}
	return all
}

// problem says who has a field.
func problem(others []string) string {
	if slices.Contains(others, Direct) {
		return "was changed since it was applied: by edit, patch, label or another program"
	}
	return "is applied with another value by " + strings.Join(others, ", ")
}

// Applied returns the owners after an apply.
func (o Owners) Applied(manager string, fields []Field, before, after any) (Owners, error) {
	var mine, changed set
	for _, f := range fields {
		p := pointer(f.Path)
		if f.Value != nil { // what is to be absent is of no one: what others set there later is not removed with the line
			mine = append(mine, p)
		}
		if differs(before, after, f.Path) {
			changed = append(changed, p)
		}
	}
	slices.Sort(mine)
	slices.Sort(changed)
	next := Owners{}
	for other, has := range o {
		kept := set(has).without(changed)
		if other == Direct { // what the file has again is no longer of others, and what is gone is not either
			kept = slices.DeleteFunc(kept.without(mine), func(p string) bool { return valueAt(after, pathOf(p)) == nil })
		}
		if other != manager {
			next.set(other, kept)
		}
	}
	next.set(manager, mine)
	return next, next.checkManagers(manager, o)
}

// checkManagers refuses one manager more than a record may have.
func (o Owners) checkManagers(manager string, before Owners) error {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(o)), func(name string) bool { return name == Direct })
	if before[manager] != nil || len(names) <= MaxManagers {
		return nil
	}
	return &trivet.FieldError{Field: "manager", Problem: fmt.Sprintf(
		"%q would be one of %d of this record: %s; at most %d", manager, len(names), strings.Join(names, ", "),
		MaxManagers)}
}

// Renamed returns the owners where one manager has what another one had.
func (o Owners) Renamed(former, manager string) Owners {
	if len(o[former]) == 0 || former == manager {
		return o
	}
	next := maps.Clone(o)
	delete(next, former)
	all := slices.Concat(o[former], o[manager])
	slices.Sort(all)
	next[manager] = slices.Compact(all)
	return next
}

// Changed returns the owners after a write that is not an apply: Direct has what it changed of the fields of others.
func (o Owners) Changed(before, after any) Owners {
	next := Owners{}
	direct := set(slices.Clone(o[Direct]))
	for manager, has := range o {
		if manager == Direct {
			continue
		}
		var kept set
		for _, p := range has {
			if differs(before, after, pathOf(p)) {
				direct = append(direct, p)
				continue
			}
			kept = append(kept, p)
		}
		next.set(manager, kept)
	}
	slices.Sort(direct)
	next.set(Direct, slices.Compact(direct))
	return next
}

// set sets the fields of a manager; one without fields is none.
func (o Owners) set(manager string, fields set) {
	if len(fields) > 0 {
		o[manager] = fields
	}
}
