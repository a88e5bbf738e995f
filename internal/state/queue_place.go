package state

import (
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// QueuePlace returns the place of a provision among those that wait for the same, as this head knows them. One that is
// paused has the place that it will have when it is resumed. At most trivet.MaxQueueCount provisions are read. ok: it
// waits for a machine.
func (t *Tables) QueuePlace(p *trivet.Provision) (place trivet.QueuePlace, ok bool) {
	if !p.Status.State.Waits() {
		return place, false
	}
	class := queueOf(p)
	place = newPlace(p)
	if p.Status.Paused != nil { // it is not among them
		place.Position, place.Of = 1, 1
	}
	for other := range t.Provisions.Under(ByWaiting, class, store.Position{}) {
		if place.Of >= trivet.MaxQueueCount {
			place.More = true
			break
		}
		place.Of++
		switch {
		case other.FullName() == p.FullName():
			place.Position = place.Of
		case p.Status.Paused != nil && older(other, p):
			place.Position++
		}
	}
	return place, true
}

// Places returns the places of all provisions that wait and are not paused, by age. more: there are others.
func (t *Tables) Places() (places []trivet.QueuePlace, more bool) {
	counted := map[string]int{}
	var classes []string
	for p := range t.Provisions.Under(ByAge, "", store.Position{}) {
		if len(places) == trivet.MaxQueueCount {
			more = true
			break
		}
		class := queueOf(p)
		counted[class]++
		place := newPlace(p)
		place.Position = counted[class]
		places, classes = append(places, place), append(classes, class)
	}
	for i := range places {
		places[i].Of, places[i].More = counted[classes[i]], more
	}
	return places, more
}

func newPlace(p *trivet.Provision) trivet.QueuePlace {
	return trivet.QueuePlace{Project: p.Project, Provision: p.Name, For: waitsFor(p)}
}

// waitsFor returns what those of a provision's queue wait for.
func waitsFor(p *trivet.Provision) string {
	switch {
	case p.Status.WaitsFor != "":
		return p.Status.WaitsFor
	case p.Spec.Machine != "":
		return "machine " + p.Spec.Machine
	}
	var labels []string
	for key, value := range p.Spec.Selector {
		labels = append(labels, key+"="+value)
	}
	slices.Sort(labels)
	return "labels " + strings.Join(labels, ",")
}
