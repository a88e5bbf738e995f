package actionspec

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
)

// problems collects everything that is wrong with an action's arguments.
type problems struct {
	path    string          // of the arguments, "spec.actions[0].with."
	timeout trivet.Duration // of one attempt of the action
	errs    []error
	// drafts are the fields whose values are known only when the template is rendered.
	drafts []string
}

func (p *problems) err() error { return errors.Join(p.errs...) }

// add reports a problem of a field, unless the field is, contains or is part of a draft.
func (p *problems) add(field, format string, args ...any) {
	p.addAny([]string{field}, format, args...)
}

// addAny reports a problem that depends on several fields, at the first of them.
func (p *problems) addAny(fields []string, format string, args ...any) {
	if slices.ContainsFunc(fields, p.isDraft) {
		return
	}
	p.errs = append(p.errs, &trivet.FieldError{Field: p.path + fields[0], Problem: fmt.Sprintf(format, args...)})
}

func (p *problems) isDraft(field string) bool {
	return slices.ContainsFunc(p.drafts, func(draft string) bool {
		return draft == field || isBelow(draft, field) || isBelow(field, draft)
	})
}

// isBelow reports whether a field is a part of another: partitions[0].size of partitions[0].
func isBelow(field, parent string) bool {
	rest, ok := strings.CutPrefix(field, parent)
	return ok && rest != "" && (rest[0] == '.' || rest[0] == '[')
}

func (p *problems) between(field string, value, least, most int) {
	if value < least || value > most {
		p.add(field, "is %d; %d to %d", value, least, most)
	}
}

func (p *problems) bytes(field, value string, limit int) {
	if len(value) > limit {
		p.add(field, "has %d bytes; at most %d", len(value), limit)
	}
}

// recordName validates the name of a record of a project; which projects may be named is not known here.
func (p *problems) recordName(field, name string) {
	if err := trivet.ValidateFullName(trivet.Resolve("", name)); err != nil {
		p.add(field, "%q is not a valid record name", name)
	}
}
