package membership

import (
	"errors"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

func TestReleaseOfTheCluster(t *testing.T) {
	t.Parallel()
	r := NewRecords(storetest.New(t, state.New), "head0")
	put := func(name, role string, s trivet.HeadState, release trivet.Release) {
		t.Helper()
		if _, err := r.Store.Update(t.Context(), func(tx *store.Tx) error {
			return r.Heads.In(tx).Put(&trivet.Head{Meta: trivet.Meta{Name: name}, Spec: trivet.HeadSpec{Role: role},
				Status: trivet.HeadStatus{State: s, Release: release}})
		}); err != nil {
			t.Fatal(err)
		}
	}
	want := func(why string, want trivet.Release) {
		t.Helper()
		if err := r.RaiseClusterVersion(t.Context()); err != nil {
			t.Fatal(err)
		}
		site, err := r.Sites.Get(trivet.SiteName)
		if err != nil && want != "" || err == nil && site.Status.ClusterVersion != want {
			t.Errorf("%s: %v, %v; want %q", why, site, err, want)
		}
	}
	want("no heads", "")
	put("head0", trivet.RoleVoter, trivet.HeadMember, "0.9")
	put("head1", trivet.RoleVoter, trivet.HeadMember, "")
	want("a head of before the releases", "")
	put("head1", trivet.RoleVoter, trivet.HeadMember, "0.10")
	want("the lowest", "0.9")
	put("head0", trivet.RoleVoter, trivet.HeadMember, "0.10")
	put("head2", trivet.RoleWitness, trivet.HeadMember, "")
	put("head3", trivet.RoleVoter, trivet.HeadJoining, "")
	put("head4", trivet.RoleVoter, trivet.HeadRemoved, "0.9")
	want("witnesses, heads that have not started, and removed ones do not count", "0.10")
	put("head0", trivet.RoleVoter, trivet.HeadMember, "0.9")
	want("it never decreases", "0.10")
	for release, refused := range map[trivet.Release]bool{"0.9": true, "0.10": false, "1.0": false} {
		_, err := r.Store.Update(t.Context(), func(tx *store.Tx) error { return r.checkRelease(tx, "head3", release) })
		if errors.Is(err, trivet.ErrInvalid) != refused {
			t.Errorf("a head of release %s: %v", release, err)
		}
	}
}
