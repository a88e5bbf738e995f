package cli

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
)

// byDependence sorts records so that they come after those that they refer to, whatever the order of the files.
func byDependence(all []*manifest) {
	slices.SortStableFunc(all, func(a, b *manifest) int { return depth(a.info.Kind) - depth(b.info.Kind) })
}

// depth returns how many kinds follow from a kind, each one by a reference of the one before that people write.
func depth(kind trivet.Kind) (deepest int) {
	for _, ref := range trivet.ReferencesFrom(kind) {
		if strings.HasPrefix(ref.Field, "spec.") {
			deepest = max(deepest, 1+depth(ref.To))
		}
	}
	return deepest
}

// deferred prints that a dry run cannot check a record, and reports whether that is so: the head refuses it for what
// it refers to, and the same files would change that. pending is what they would change.
func (a *app) deferred(m *manifest, refusal error, pending []*manifest) bool {
	wrong := apitypes.FieldErrors(refusal)
	if len(wrong) == 0 || errors.Is(refusal, trivet.ErrConflict) {
		return false
	}
	var before []string
	for _, fe := range wrong {
		i := slices.IndexFunc(pending, func(p *manifest) bool { return a.decides(p, m, fe.Field) })
		if i < 0 {
			return false
		}
		before = append(before, pending[i].title())
	}
	fmt.Fprintf(a.Out, "%s cannot be checked before %s is applied: %v\n", m.title(), before[0], wrong[0])
	return true
}

// alsoChecked is the beginning of the fields that the head checks by what another field refers to.
var alsoChecked = map[string]string{"spec.template": "spec.parameters.", "spec.bmc.secret": "spec.bmc.address"}

// nicAddress is a field that the head checks by the networks.
var nicAddress = regexp.MustCompile(`^spec\.nics\[\d+\]\.address$`)

// decides reports whether the head checks a field of m by the record p, to which m refers. A provision's template may
// name any image.
func (a *app) decides(p, m *manifest, field string) bool {
	if m.info.Kind == "Provision" && p.info.Kind == "Image" {
		return field == "spec.template"
	}
	if m.info.Kind == "Machine" && p.info.Kind == "Network" {
		return nicAddress.MatchString(field)
	}
	if m.info.Scope == trivet.ScopeProject {
		m.record.Header().Project = m.project(a)
	}
	for _, ref := range trivet.ReferencesFrom(m.info.Kind) {
		also := alsoChecked[ref.Field]
		if ref.To != p.info.Kind || field != ref.Field && (also == "" || !strings.HasPrefix(field, also)) {
			continue
		}
		if slices.ContainsFunc(ref.Targets(m.record), func(t trivet.Target) bool { return t.Name == p.fullName(a) }) {
			return true
		}
	}
	return false
}

// fullName returns the name of the record in the store.
func (m *manifest) fullName(a *app) string {
	if m.info.Scope != trivet.ScopeProject {
		return m.record.Header().Name
	}
	return trivet.FullName(m.project(a), m.record.Header().Name)
}
