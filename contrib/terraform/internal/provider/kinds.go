package provider

import (
	"reflect"

	"github.com/trivet-project/trivet"
)

// kind describes a kind of records to the resource that serves all kinds.
type kind struct {
	info trivet.KindInfo
	// about is the description of the resource.
	about string
	// secretData: spec.data is a write-only attribute of its own, and is neither in the state nor in spec.
	secretData bool
	// runs: a creation waits until the record has ended.
	runs bool
	// replaces reports whether a change of spec needs a new record; nil: none does.
	replaces func(old, next map[string]any) bool
}

// kinds are the kinds that the resource serves.
var kinds = []kind{
	{info: info("Machine"), about: "A physical machine."},
	{info: info("Template"), about: "A list of actions that bring a machine into the desired state."},
	{info: info("Provision"), about: "A request to apply a template to a machine. Its destruction releases the machine.",
		runs: true, replaces: provisionReplaced},
	{info: info("Network"), about: "A subnet from which machines boot."},
	{info: info("Secret"), about: "Sealed values. They are written and never read.", secretData: true},
	{info: info("Account"), about: "A person or program that uses the API."},
}

// info returns the description of a kind that exists.
func info(kind string) trivet.KindInfo {
	found, err := trivet.LookupKind(kind)
	if err != nil {
		panic(err) // a mistake in this program
	}
	return found
}

// provisionReplaced reports whether a provision must be created again: the spec of one that has started is constant. Of
// one with a count, that may change.
func provisionReplaced(old, next map[string]any) bool {
	return old["count"] == nil || next["count"] == nil || !isEqual(without(old), without(next))
}

func without(spec map[string]any) map[string]any {
	rest := map[string]any{}
	for key, value := range spec {
		if key != "count" && key != "maxInFlight" {
			rest[key] = value
		}
	}
	return rest
}

// isInProject reports whether the records belong to projects.
func (k *kind) isInProject() bool { return k.info.Scope == trivet.ScopeProject }

// hasStatus reports whether the records have a status.
func (k *kind) hasStatus() bool {
	return k.field("Status").IsValid()
}

func (k *kind) field(name string) reflect.Value {
	return reflect.ValueOf(k.info.New()).Elem().FieldByName(name)
}
