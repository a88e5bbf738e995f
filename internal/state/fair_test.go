package state_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/provision"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// newAged returns tables whose records are a second apart, in the order of their creation.
func newAged(t *testing.T) *state.Tables {
	t.Helper()
	now := time.Now()
	return storetest.On(t, storetest.Member(t), store.Options{Now: func() time.Time {
		now = now.Add(time.Second)
		return now
	}}, state.New)
}

func put(t *testing.T, tables *state.Tables, records ...trivet.Record) {
	t.Helper()
	if _, err := tables.Store.Update(t.Context(), func(tx *store.Tx) error {
		for _, r := range records {
			if err := tx.PutRecord(r); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func provisionIn(project, name, rack string, state trivet.ProvisionState) *trivet.Provision {
	return &trivet.Provision{Meta: trivet.Meta{Project: project, Name: name}, Spec: trivet.ProvisionSpec{Template: "t",
		Selector: map[string]string{"rack": rack}}, Status: trivet.ProvisionStatus{State: state}}
}

func order(tables *state.Tables, m *trivet.Machine, n int) string {
	var all []string
	for p := range tables.WaitingFor(m) {
		if len(all) == n {
			break
		}
		all = append(all, p.FullName())
	}
	return strings.Join(all, " ")
}

// Projects get machines in turns, whatever the number of provisions that wait in each, and first the project with the
// fewest that run. Within a project the oldest is first, whatever its selector.
func TestProjectsTakeTurns(t *testing.T) {
	tables := newAged(t)
	m := &trivet.Machine{Meta: trivet.Meta{Name: "m", Labels: map[string]string{"rack": "r1", "room": "a"}}}
	for i := range 30 {
		put(t, tables, provisionIn("busy", fmt.Sprintf("p%02d", i), "r1", ""))
	}
	put(t, tables, provisionIn("calm", "one", "r1", ""), provisionIn("other", "elsewhere", "r2", ""))
	room := provisionIn("busy", "room", "r1", "")
	room.Spec.Selector = map[string]string{"room": "a"}
	put(t, tables, room)
	if got, want := order(tables, m, 4), "busy/p00 calm/one busy/p01 busy/p02"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	put(t, tables, provisionIn("busy", "p00", "r1", trivet.ProvisionRunning))
	if got, want := order(tables, m, 3), "calm/one busy/p01 busy/p02"; got != want {
		t.Errorf("one of the busy project runs: %s, want %s", got, want)
	}
	put(t, tables, provisionIn("calm", "two", "r1", trivet.ProvisionRunning),
		provisionIn("calm", "three", "r1", trivet.ProvisionRunning))
	if got, want := order(tables, m, 3), "busy/p01 calm/one busy/p02"; got != want {
		t.Errorf("two of the calm project run: %s, want %s", got, want)
	}
	put(t, tables, provisionIn("calm", "two", "r1", trivet.ProvisionSucceeded),
		provisionIn("calm", "three", "r1", trivet.ProvisionFailed))
	all := strings.Fields(order(tables, m, 100))
	if len(all) != 31 || all[0] != "calm/one" || all[1] != "busy/p01" || all[30] != "busy/room" {
		t.Errorf("all in turns: %v", all)
	}
	if got := slices.Compact(slices.Sorted(slices.Values(all))); len(got) != len(all) {
		t.Errorf("some are offered the machine twice: %v", all)
	}
}

// The first of those that wait for a machine is found with the same work, whatever their number.
func TestTurnsReadFew(t *testing.T) {
	tables := storetest.New(t, state.New)
	m := &trivet.Machine{Meta: trivet.Meta{Name: "m", Labels: map[string]string{"rack": "r1"}}}
	wait := func(from, to int) {
		for ; from < to; from += 50 {
			var all []trivet.Record
			for i := range 50 {
				all = append(all, provisionIn(fmt.Sprint("project", i%3), fmt.Sprint("p", from+i), "r1", ""))
			}
			put(t, tables, all...)
		}
	}
	work := func() float64 { return testing.AllocsPerRun(20, func() { order(tables, m, 1) }) }
	wait(0, 50)
	few := work()
	wait(50, 2050)
	if many := work(); many > 1.5*few {
		t.Errorf("2050 that wait cost %.0f allocations, 50 cost %.0f", many, few)
	}
}

// Members are found by their provision and state, with the highest number first, and apart from those of an earlier
// provision of the same name.
func TestMembersAreFound(t *testing.T) {
	tables := storetest.New(t, state.New)
	count := 3
	site := &trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
		Status: trivet.SiteStatus{ClusterVersion: trivet.CurrentRelease}}
	put(t, tables, site)
	parent := func(name, uid string) *trivet.Provision {
		p := provisionIn("default", name, "r1", "")
		p.UID, p.Spec.Count = uid, &count
		return p
	}
	member := func(of *trivet.Provision, n int, state trivet.ProvisionState) *trivet.Provision {
		p := provisionIn("default", trivet.MemberName(of.Name, n), "r1", state)
		p.Status.MemberOf, p.Status.MemberOfUID = of.Name, of.UID
		return p
	}
	web, web1, gone := parent("web", "m"), parent("web-1", "x"), parent("web", "c")
	later := parent("web", "z")
	put(t, tables, web, web1, member(web, 2, ""), member(web, 10, trivet.ProvisionPending), member(web, 9, ""),
		member(web, 3, trivet.ProvisionFailed), member(gone, 4, ""), member(later, 5, trivet.ProvisionRunning),
		member(web1, 7, ""), member(parent("dead", "d"), 1, ""))
	names := func(all func(yield func(*trivet.Provision) bool)) string {
		var names []string
		for p := range all {
			names = append(names, p.Name)
		}
		return strings.Join(names, " ")
	}
	for _, c := range []struct{ got, want string }{
		{names(tables.Members(web, provision.MemberWaiting)), "web-10 web-9 web-2"},
		{names(tables.Members(web, provision.MemberFailed)), "web-3"},
		{names(tables.Members(web, provision.MemberRunning)), ""},
		{names(tables.Orphans("default/web", "m")), "web-4 web-5"},
		{names(tables.Orphans("default/dead", "")), "dead-1"},
		{names(tables.Orphans("default/web-1", "x")), ""},
		{strings.Join(slices.Collect(tables.Parents()), " "), "default/dead default/web default/web-1"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
	if n := len(strings.Fields(names(tables.Orphans("default/web", "")))); n != 6 {
		t.Errorf("%d members of provisions that were named web, want 6", n)
	}
	m := &trivet.Machine{Meta: trivet.Meta{Labels: map[string]string{"rack": "r1"}}}
	for _, name := range strings.Fields(order(tables, m, 99)) {
		if name == "default/web" || name == "default/web-1" {
			t.Errorf("%s waits for a machine, and has members", name)
		}
	}
}
