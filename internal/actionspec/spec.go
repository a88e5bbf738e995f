// Package actionspec says which arguments the built-in actions take, and checks them. It is pure, so that the API refuses at
// apply what the agent would refuse on the machine.
//
// Each action has a struct here; a field's tag is its key in the action's `with`. Keys that no field has are refused.
// Numbers and booleans may stand as texts ("2", "true"), because templates are texts.
package actionspec

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
)

// Spec is the arguments of one action.
type Spec interface {
	// check looks at the values, with defaults filled in.
	check(p *problems)
}

// makers gives an empty Spec for each action, with its defaults.
var makers = map[string]func() Spec{
	"wipe":       func() Spec { return &Wipe{Mode: WipeQuick} },
	"partition":  func() Spec { return &Partition{} },
	"format":     func() Spec { return &Format{} },
	"image":      func() Spec { return &Image{} },
	"archive":    func() Spec { return &Archive{Path: "/"} },
	"file":       func() Spec { return &File{Mode: 0o644, Owner: Owner{"0", "0"}} },
	"command":    func() Spec { return &Command{In: InRoot, Blame: trivet.FaultConfiguration} },
	"seed":       func() Spec { return &Seed{Path: "/var/lib/cloud/seed/nocloud"} },
	"bootloader": func() Spec { return &Bootloader{Kind: "grub"} },
	"container":  func() Spec { return &Container{Blame: trivet.FaultConfiguration} },
	"kexec":      func() Spec { return &Kexec{} },
	"reboot":     func() Spec { return &Reboot{} },
	"poweroff":   func() Spec { return &Poweroff{} },
	"noop":       func() Spec { return &Noop{} },
}

// Parse gives the arguments of a rendered action, as a pointer to one of this package's structs. Its errors are
// [trivet.ErrInvalid] and name the field.
func Parse(a trivet.Action) (Spec, error) { return parse(a, false) }

// Check says what is wrong with a template's action. Of one with texts that hold "{{" only the keys and kinds are checked:
// the values are known at the claim, when [Parse] is called.
func Check(a trivet.Action) error {
	_, err := parse(a, true)
	return err
}

func parse(a trivet.Action, isTemplate bool) (Spec, error) {
	empty := makers[a.Use]
	if empty == nil {
		return nil, &trivet.FieldError{Field: "use", Problem: fmt.Sprintf("%q is no action", a.Use)}
	}
	s, p := empty(), problems{}
	d := decoder{problems: &p, isTemplate: isTemplate}
	d.fields("", a.With, reflect.ValueOf(s).Elem())
	if len(p) == 0 && !d.isDraft {
		s.check(&p)
	}
	return s, errors.Join(p...)
}

// Images are the Image records that a rendered action names.
func Images(a trivet.Action) []string {
	s, err := Parse(a)
	if err != nil {
		return nil
	}
	switch s := s.(type) {
	case *Image:
		return []string{s.Image}
	case *Archive:
		return []string{s.Image}
	case *Container:
		if s.Image != "" {
			return []string{s.Image}
		}
	}
	return nil
}

// problems gathers what is wrong, so that a person sees all of it at once.
type problems []error

func (p *problems) add(field, format string, args ...any) {
	*p = append(*p, &trivet.FieldError{Field: "with." + field, Problem: fmt.Sprintf(format, args...)})
}

func (p *problems) need(field, value string) {
	if value == "" {
		p.add(field, "is missing")
	}
}

func (p *problems) oneOf(field, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		p.add(field, "%q must be one of %s", value, strings.Join(allowed, ", "))
	}
}

func (p *problems) bytes(field, value string, limit int) {
	if len(value) > limit {
		p.add(field, "has %d bytes; at most %d", len(value), limit)
	}
}
