package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/trivet-project/trivet"
)

// readTogether reads manifests that are applied together.
func (a *app) readTogether(paths []string) ([]*manifest, error) {
	all, err := a.readManifests(paths)
	if err != nil {
		return nil, err
	}
	return all, a.checkTogether(all)
}

// checkTogether refuses two records of one name, and two machines with one MAC or fixed address: the second one would
// replace the first, or be refused after that was written.
func (a *app) checkTogether(all []*manifest) error {
	first := map[string]string{} // where it is, by what only one may have
	var errs []error
	for _, m := range all {
		for _, own := range m.owns(m.project(a)) {
			at := m.find(own.field)
			if where, taken := first[own.what]; taken {
				errs = append(errs, m.locate(&trivet.FieldError{Field: own.field,
					Problem: fmt.Sprintf("%s is in %s, too; write it once", own.what, where)}))
				continue
			}
			first[own.what] = fmt.Sprintf("%s:%d", m.file, at.line)
		}
	}
	return errors.Join(errs...)
}

// owned is what only one record may have, and the field that has it.
type owned struct{ field, what string }

// owns returns what no other record may have.
func (m *manifest) owns(project string) []owned {
	name := m.record.Header().Name
	if m.info.Scope == trivet.ScopeProject {
		name = trivet.ShortName(trivet.FullName(project, name))
	}
	all := []owned{{"name", strings.ToLower(string(m.info.Kind)) + "/" + name}}
	machine, ok := m.record.(*trivet.Machine)
	if !ok {
		return all
	}
	for i, nic := range machine.Spec.NICs {
		all = append(all, owned{fmt.Sprintf("spec.nics[%d].mac", i), nic.MAC})
		if nic.Address.IsValid() {
			all = append(all, owned{fmt.Sprintf("spec.nics[%d].address", i), nic.Address.String()})
		}
	}
	return all
}
