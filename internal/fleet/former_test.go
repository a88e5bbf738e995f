package fleet_test

import (
	"errors"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// A provision that is created again does not use the name of a former run of the first, by whichever head it was made
// one: the logs of both would be mixed.
func TestNameOfFormerRunIsNotUsed(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	r := rackOn(t, fleet.New(storetest.On(t, m, store.Options{Head: "head0"}, state.New), "head0"))
	far := storetest.On(t, m, store.Options{Head: "head1"}, state.New)
	r.write(func(tx *store.Tx) error {
		return r.Sites.In(tx).Put(&trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
			Status: trivet.SiteStatus{ClusterVersion: trivet.CurrentRelease}})
	})
	retire := func(name string) {
		t.Helper()
		_, err := far.Store.Update(t.Context(), func(tx *store.Tx) error { return far.Workflows.In(tx).Retire(name) })
		if err := errors.Join(err, r.Store.Sync(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	uids := map[string]bool{}
	for _, run := range []string{"p-1", "p-2", "p-4", "p-8"} { // at growing distances, as former runs are not counted
		r.provision("p")
		if got := r.machine().Status.Workflow; got != run {
			t.Fatalf("the machine's run is %q, want %q", got, run)
		}
		r.release("p")
		w, err := r.Workflows.Get("default/" + run)
		r.must(err)
		uids[w.UID] = true
		r.must(far.Store.Sync(t.Context()))
		retire("default/" + run)
	}
	for _, run := range []string{"p-1", "p-2", "p-4", "p-8"} {
		w, err := r.Workflows.Find(t.Context(), "default/"+run)
		if err != nil || !uids[w.UID] {
			t.Errorf("%s: %+v, %v", run, w, err)
		}
	}
	r.provision("other")
	if got := r.machine().Status.Workflow; got != "other-1" {
		t.Errorf("the run of another provision is %s", got)
	}
}
