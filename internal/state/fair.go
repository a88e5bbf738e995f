package state

import (
	"cmp"
	"iter"
	"slices"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/placement"
	"github.com/trivet-project/trivet/internal/store"
)

// A machine that becomes available is offered to one project after the other, whatever the number of provisions that wait in
// each: first to the project with the fewest provisions that run now. So one with many does not keep others waiting.
// Each decision reads one provision of each project that waits for such a machine.

// WaitingFor yields the shared provisions that may use a machine and wait for one, in the order in which they get it:
// one of each project, the oldest, and then the next of each. Projects are in order of how many of their provisions
// run, then of how long their first one waits.
func (t *Tables) WaitingFor(m *trivet.Machine) iter.Seq[*trivet.Provision] {
	all := []string{namingClass(m)}
	t.classes("", pairs(m.Labels), func(class string) { all = append(all, class) })
	return t.alternately(m, all)
}

// NamingFor is WaitingFor, of the provisions that name the machine.
func (t *Tables) NamingFor(m *trivet.Machine) iter.Seq[*trivet.Provision] {
	return t.alternately(m, []string{namingClass(m)})
}

func namingClass(m *trivet.Machine) string { return byName + m.Name + endSelector }

// queue is what waits in one project, in a list for each selector.
type queue struct {
	running int
	heads   []head // the first of each list
}

// head is the first provision of a list, from a place on.
type head struct {
	list string // what the keys of the list begin with
	*trivet.Provision
}

func (t *Tables) alternately(m *trivet.Machine, classes []string) iter.Seq[*trivet.Provision] {
	return func(yield func(*trivet.Provision) bool) {
		queues := t.queues(m, classes)
		slices.SortFunc(queues, func(a, b *queue) int {
			switch {
			case a.running != b.running:
				return cmp.Compare(a.running, b.running)
			case older(a.first().Provision, b.first().Provision):
				return -1
			}
			return 1
		})
		for len(queues) > 0 {
			for _, q := range queues {
				if !yield(t.take(m, q)) {
					return
				}
			}
			queues = slices.DeleteFunc(queues, func(q *queue) bool { return len(q.heads) == 0 })
		}
	}
}

// queues returns the projects that wait for a machine. It reads the first provision of each list only.
func (t *Tables) queues(m *trivet.Machine, classes []string) (all []*queue) {
	projects := map[string]*queue{}
	for _, class := range classes {
		place := store.Position{}
		for {
			found := first(t.Provisions.Under(ByWaiting, class, place))
			if found == nil {
				break
			}
			place = store.Position{Key: class + found.Project + endSelector} // after those of the project
			list := queueOf(found)
			p := t.nextIn(list, m, store.Position{})
			if p == nil {
				continue
			}
			of := projects[found.Project]
			if of == nil {
				of = &queue{running: t.counts.running.Count(found.Project)}
				projects[found.Project] = of
				all = append(all, of)
			}
			of.heads = append(of.heads, head{list, p})
		}
	}
	return all
}

// first returns the list with the oldest provision.
func (q *queue) first() *head {
	oldest := &q.heads[0]
	for i := range q.heads {
		if older(q.heads[i].Provision, oldest.Provision) {
			oldest = &q.heads[i]
		}
	}
	return oldest
}

// take returns the oldest provision of a project and goes on to the next.
func (t *Tables) take(m *trivet.Machine, of *queue) *trivet.Provision {
	oldest := of.first()
	p := oldest.Provision
	oldest.Provision = t.nextIn(oldest.list, m, store.Position{Key: waitingKey(p), Name: p.FullName()})
	of.heads = slices.DeleteFunc(of.heads, func(h head) bool { return h.Provision == nil })
	return p
}

// nextIn returns the first provision of a list, after a place, that may use a machine; nil where there is none.
func (t *Tables) nextIn(list string, m *trivet.Machine, place store.Position) *trivet.Provision {
	for p := range t.Provisions.Under(ByWaiting, list, place) {
		if placement.Matches(m, &p.Spec) {
			return p
		}
	}
	return nil
}
