package state

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/placement"
	"github.com/trivet-project/trivet/internal/store"
)

// Provisions and machines find each other by labels, without a scan of either. A machine is in index ByLabel under
// each of its labels. A provision that waits for a machine is in index ByWaiting once: under its whole selector, in
// order of the keys, and there by project and age. While it is paused it is in no index, and its age keeps its place. The
// selectors that a machine matches are found as paths along its labels.

// Parts of the keys. A label ends with endLabel, so that none is the prefix of another one.
const (
	free, taken = "+", "-" // machines that can be claimed, and others
	endLabel    = "\x01"
	endSelector = "\x02"
	byName      = "\x03" // provisions that name their machine
	byFault     = "\x04" // provisions that wait until something that machines share is not at fault any more
)

// pairs returns labels as in keys, in order.
func pairs(labels map[string]string) (all []string) {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		all = append(all, key+"="+labels[key]+endLabel)
	}
	return all
}

func labelKeys(m *trivet.Machine) []string {
	class, all := classOf(m), pairs(m.Labels)
	for i := range all {
		all[i] = class + all[i]
	}
	return all
}

func classOf(m *trivet.Machine) string {
	if placement.Free(m) {
		return free
	}
	return taken
}

// Search bounds a search for machines.
type Search struct {
	After string // the name of the machine that it begins after; during the search that of the last one that was read
	Left  int    // how many it may read; 0: it may have ended before it read all
}

// FreeMachines yields the shared machines that can be claimed and have all labels of a selector, in order of name.
func (t *Tables) FreeMachines(selector map[string]string, s *Search) iter.Seq[*trivet.Machine] {
	return t.labelled(free, selector, s)
}

// TakenMachines yields the shared machines that cannot be claimed and have all labels of a selector, in order of name.
func (t *Tables) TakenMachines(selector map[string]string, s *Search) iter.Seq[*trivet.Machine] {
	return t.labelled(taken, selector, s)
}

// labelled yields the machines of a class that have all labels. It follows the list of one label; from a machine that
// lacks another label it goes on in the list of that one, so that it soon follows the shortest.
func (t *Tables) labelled(class string, labels map[string]string, s *Search) iter.Seq[*trivet.Machine] {
	return func(yield func(*trivet.Machine) bool) {
		for list := lacking(nil, labels); list != "" && s.Left > 0; s.Left-- {
			key := class + list + "=" + labels[list] + endLabel
			m := first(t.Machines.Under(ByLabel, key, store.Position{Key: key, Name: s.After}))
			if m == nil {
				return
			}
			s.After = m.Name
			if lacks := lacking(m.Labels, labels); lacks != "" {
				list = lacks
			} else if !yield(m) {
				return
			}
		}
	}
}

// lacking returns the key of one of the labels that is not in has; empty where all are.
func lacking(has, labels map[string]string) string {
	for key, value := range labels {
		if got, ok := has[key]; !ok || got != value {
			return key
		}
	}
	return ""
}

func waitingKeys(p *trivet.Provision) []string {
	if !p.Waits() {
		return nil
	}
	return []string{waitingKey(p)}
}

func ageKeys(p *trivet.Provision) []string {
	if !p.Waits() {
		return nil
	}
	return []string{age(p)}
}

func waitingKey(p *trivet.Provision) string { return queueOf(p) + age(p) }

// queueOf returns what the keys of those begin with that are in one queue with a provision: of its project, and for the
// same machines.
func queueOf(p *trivet.Provision) string { return classOfProvision(p) + p.Project + endLabel }

func classOfProvision(p *trivet.Provision) string {
	switch {
	case p.Status.WaitsFor != "":
		return byFault + p.Status.WaitsFor + endSelector
	case p.Spec.Machine != "":
		return byName + p.Spec.Machine + endSelector
	}
	class := ""
	for _, pair := range pairs(p.Spec.Selector) {
		class += pair
	}
	return class + endSelector
}

// age orders provisions by when they were created.
func age(p *trivet.Provision) string { return fmt.Sprintf("%020d", max(0, p.Created.UnixMilli())) }

// Waiting yields the shared provisions that wait for a machine and are after another one, by selector, project and age.
// after is nil at the beginning.
func (t *Tables) Waiting(after *trivet.Provision) iter.Seq[*trivet.Provision] {
	place := store.Position{}
	if after != nil {
		place = store.Position{Key: waitingKey(after), Name: after.FullName()}
	}
	return t.Provisions.Under(ByWaiting, "", place)
}

// WaitingForFault yields the shared provisions that wait until what machines share is not at fault any more.
func (t *Tables) WaitingForFault(what string) iter.Seq[*trivet.Provision] {
	return t.Provisions.Under(ByWaiting, byFault+what+endSelector, store.Position{})
}

// classes calls do for each selector, of those that begin with some labels, whose further labels are all among rest.
func (t *Tables) classes(begin string, rest []string, do func(class string)) {
	if first(t.Provisions.Under(ByWaiting, begin, store.Position{})) == nil {
		return
	}
	do(begin + endSelector)
	for i, label := range rest {
		t.classes(begin+label, rest[i+1:], do)
	}
}

// older reports whether a provision waits for longer than another.
func older(p, other *trivet.Provision) bool {
	if age(p) != age(other) {
		return age(p) < age(other)
	}
	return p.FullName() < other.FullName()
}

// first returns the first record; nil where there is none.
func first[T any](records iter.Seq[*T]) *T {
	for r := range records {
		return r
	}
	return nil
}
