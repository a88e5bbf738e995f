package fleet_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/store"
)

// The machines that no one accepted are bounded: a new one replaces the oldest that is silent.
func TestForgedEnrolments(t *testing.T) {
	r := newRack(t)
	r.write(func(tx *store.Tx) error {
		return r.Sites.In(tx).Put(&trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
			Spec: trivet.SiteSpec{Discovered: 3}})
	})
	heard := map[string]bool{}
	r.AgentSilence = func(machine string, _ int64) time.Duration {
		if heard[machine] {
			return 0
		}
		return time.Hour
	}
	enrol := func(i int) (string, error) {
		mac := fmt.Sprintf("52:54:00:00:66:%02x", i)
		return r.Hello(t.Context(), &trivet.Hello{MAC: mac, Key: "k", BootID: "b"},
			auth.BootToken{Machine: fleet.EnrolledName(mac), MAC: mac})
	}
	var names []string
	for i := range 6 {
		name, err := enrol(i)
		r.must(err)
		names = append(names, name)
		heard[names[0]] = true
		if i == 1 {
			r.must(r.Accept(t.Context(), name))
		}
		time.Sleep(2 * time.Millisecond) // each is created later
	}
	var left []string
	for m := range r.Machines.AllShared() {
		left = append(left, m.Name)
	}
	slices.Sort(left)
	if want := []string{names[0], names[1], names[4], names[5], "m1"}; !slices.Equal(left, want) {
		t.Errorf("the machines are %q, want %q: one is heard, one was accepted, the newest", left, want)
	}
	if n := len(r.MACs.List()); n != 5 {
		t.Errorf("%d MACs are reserved, want 5", n)
	}
	for _, e := range r.events("") {
		if e.Spec.Subject == "machine/"+names[2] {
			t.Errorf("event %s of a machine that was forgotten", e.Name)
		}
	}
	for _, name := range names {
		heard[name] = true
	}
	if _, err := enrol(6); !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("another one, and all are heard: %v", err)
	}
}
