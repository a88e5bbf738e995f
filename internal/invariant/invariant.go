// Package invariant has the conditions that hold where all is well, each as a pure function over the facts that
// internal/health collects: heads.go and store.go about the control plane, boot.go about what machines boot from,
// spare.go about the next failure, and site.go about what is recorded of machines, runs and backups.
package invariant

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
)

// Names returns those of all invariants, in the order in which they are shown.
func Names() (all []string) {
	for _, r := range rules {
		all = append(all, r.name)
	}
	return all
}

// rules are the invariants. The first ones explain those that follow.
var rules = []struct {
	name  string
	check func(f *trivet.StatusFacts, r *result)
}{
	{"quorum", quorum},
	{"heads", heads},
	{"spare", spare},
	{"takeover", takeover},
	{"versions", versions},
	{"clocks", clocks},
	{"store-data", storeData},
	{"store-size", storeSize},
	{"disk", disk},
	{"memory", memory},
	{"certificates", certificates},
	{"dhcp", dhcp},
	{"tftp", tftp},
	{"boot-http", bootHTTP},
	{"blobs", blobs},
	{"backups", backups},
	{"provisions", provisions},
	{"agents", agents},
	{"machines", machines},
	{"notifiers", notifiers},
}

// Check returns the state of each invariant by these facts.
func Check(f *trivet.StatusFacts) []trivet.Invariant {
	all := make([]trivet.Invariant, len(rules))
	for i, rule := range rules {
		r := result{Invariant: trivet.Invariant{Name: rule.name, State: trivet.InvariantHolds}}
		rule.check(f, &r)
		all[i] = r.finish()
	}
	return all
}

// levels orders the states.
var levels = []trivet.InvariantState{trivet.InvariantHolds, trivet.InvariantWarning, trivet.InvariantBroken}

// Level is the number of a state: 0 where the invariant holds, 1 for a warning, 2 where it is broken.
func Level(s trivet.InvariantState) int { return max(0, slices.Index(levels, s)) }

// Worst returns the worst state.
func Worst(all []trivet.Invariant) trivet.InvariantState {
	worst := trivet.InvariantHolds
	for _, i := range all {
		if Level(i.State) > Level(worst) {
			worst = i.State
		}
	}
	return worst
}

// maxEvidence bounds the lines of evidence of one invariant.
const maxEvidence = 12

// result collects what a rule finds. The worst finding is the summary, and has the remedy.
type result struct {
	trivet.Invariant
	found []string
	notes []string
}

func (r *result) broken(remedy, format string, args ...any) {
	r.add(trivet.InvariantBroken, remedy, fmt.Sprintf(format, args...))
}

func (r *result) warn(remedy, format string, args ...any) {
	r.add(trivet.InvariantWarning, remedy, fmt.Sprintf(format, args...))
}

// holds sets the summary of an invariant that holds, if it has none yet.
func (r *result) holds(format string, args ...any) {
	if r.Summary == "" {
		r.Summary = fmt.Sprintf(format, args...)
	}
}

// note adds a fact that does not change the state.
func (r *result) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

func (r *result) add(s trivet.InvariantState, remedy, text string) {
	r.found = append(r.found, text)
	if Level(s) > Level(r.State) {
		r.State, r.Summary, r.Remedy = s, text, remedy
	}
}

// finish returns the invariant with its evidence: what was found besides the summary, and the notes.
func (r *result) finish() trivet.Invariant {
	all := slices.Concat(r.found, r.notes)
	all = slices.DeleteFunc(all, func(text string) bool { return text == r.Summary })
	if len(all) > maxEvidence {
		more := len(all) - maxEvidence + 1
		all = append(all[:maxEvidence-1], fmt.Sprintf("and %d more", more))
	}
	r.Evidence = all
	return r.Invariant
}

// own yields the heads that reported facts of themselves.
func own(f *trivet.StatusFacts, do func(h *trivet.HeadFacts, o *trivet.OwnFacts)) {
	for i := range f.Heads {
		if h := &f.Heads[i]; h.Own != nil {
			do(h, h.Own)
		}
	}
}

// names joins some names, at most four of them.
func names(all []string) string {
	const shown = 4
	if len(all) <= shown {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:shown], ", "), len(all)-shown)
}

// count returns a number with its noun.
func count(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// has returns the form of a verb for a number of things.
func has(n int, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}

// size returns a number of bytes in the unit that people read.
func size(n int64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

// age returns a duration in the unit that people read.
func age(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d >= 2*day:
		return fmt.Sprintf("%d days", d/day)
	case d >= 2*time.Hour:
		return fmt.Sprintf("%d hours", d/time.Hour)
	case d >= 2*time.Minute:
		return fmt.Sprintf("%d minutes", d/time.Minute)
	}
	return d.Round(time.Second).String()
}

// sortedNames returns names without copies, in natural order: head4 before head10.
func sortedNames(all []string) []string {
	slices.SortFunc(all, func(a, b string) int {
		const digits = "0123456789"
		return cmp.Or(cmp.Compare(strings.TrimRight(a, digits), strings.TrimRight(b, digits)),
			cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	})
	return slices.Compact(all)
}
