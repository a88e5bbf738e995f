package membership

import (
	"errors"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/peer"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

func upgradeTo(version string, release trivet.Release, digest string) trivet.UpgradeSpec {
	return trivet.UpgradeSpec{Version: version, Release: release,
		Programs: []trivet.Program{{Arch: "amd64", Blob: trivet.BlobRef{Digest: digest}}}}
}

// upgrades are the records of a cluster whose heads have the present release.
func upgrades(t *testing.T) *Records {
	t.Helper()
	r := NewRecords(storetest.New(t, state.New), "head0")
	putHead(t, r, trivet.CurrentRelease)
	if err := r.RaiseClusterVersion(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

func putHead(t *testing.T, r *Records, release trivet.Release) {
	t.Helper()
	if _, err := r.Store.Update(t.Context(), func(tx *store.Tx) error {
		return r.Heads.In(tx).Put(&trivet.Head{Meta: trivet.Meta{Name: "head0"},
			Status: trivet.HeadStatus{State: trivet.HeadMember, Release: release}})
	}); err != nil {
		t.Fatal(err)
	}
}

// reach sets the phase of the upgrade, as the controller does.
func reach(t *testing.T, r *Records, phase trivet.UpgradePhase) {
	t.Helper()
	if _, err := r.changeUpgrade(t.Context(), func(_ *store.Tx, u *trivet.Upgrade) error {
		u.Status.Run, u.Status.Phase, u.Status.Former = u.Spec.Run, phase, trivet.CurrentRelease
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func TestUpgradeRequests(t *testing.T) {
	t.Parallel()
	r := upgrades(t)
	refused := func(what string, err error, text string) {
		t.Helper()
		if !errors.Is(err, trivet.ErrConflict) && !errors.Is(err, trivet.ErrInvalid) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v; want %s", what, err, text)
		}
	}
	_, err := r.PauseUpgrade(t.Context(), true)
	refused("a pause of none", err, "no upgrade is in progress")
	_, err = r.RollbackUpgrade(t.Context())
	refused("a rollback of none", err, "no upgrade is in progress")
	_, err = r.Upgrade(t.Context(), upgradeTo("v0", "0.3", "sha256:1"))
	refused("an older release", err, "the cluster uses what release")
	first, err := r.Upgrade(t.Context(), upgradeTo("v2", "99.0", "sha256:1"))
	if err != nil || first.Spec.Run != 1 {
		t.Fatalf("%+v, %v", first, err)
	}
	again, err := r.Upgrade(t.Context(), upgradeTo("v2", "99.0", "sha256:1"))
	if err != nil || again.Spec.Run != 1 || again.Generation != first.Generation {
		t.Errorf("the same again: %+v, %v", again, err)
	}
	_, err = r.Upgrade(t.Context(), upgradeTo("v3", "99.0", "sha256:2"))
	refused("another one", err, "the upgrade to v2 is in progress")
	if u, err := r.PauseUpgrade(t.Context(), true); err != nil || !u.Spec.Paused {
		t.Errorf("%+v, %v", u, err)
	}
	reach(t, r, trivet.UpgradeSwitching)
	if u, err := r.RollbackUpgrade(t.Context()); err != nil || !u.Spec.Rollback || u.Spec.Paused {
		t.Errorf("%+v, %v", u, err)
	}
	_, err = r.PauseUpgrade(t.Context(), true)
	refused("a pause of a rollback", err, "go back")
	_, err = r.Upgrade(t.Context(), upgradeTo("v2", "99.0", "sha256:1"))
	refused("the same during a rollback", err, "is in progress")
	reach(t, r, trivet.UpgradeReverted)
	_, err = r.RollbackUpgrade(t.Context())
	refused("a second rollback", err, "no upgrade")
	if u, err := r.Upgrade(t.Context(), upgradeTo("v2", "99.0", "sha256:1")); err != nil || u.Spec.Run != 2 ||
		u.Spec.Rollback {
		t.Errorf("the same afterwards: %+v, %v", u, err)
	}
}

// While an upgrade is in progress the cluster's version stays, so that its heads may go back; after it, they may only
// where that was not raised.
func TestUpgradeHoldsTheClusterVersion(t *testing.T) {
	t.Parallel()
	r := upgrades(t)
	want := func(release trivet.Release) {
		t.Helper()
		if err := r.RaiseClusterVersion(t.Context()); err != nil {
			t.Fatal(err)
		}
		if site, err := r.Sites.Get(trivet.SiteName); err != nil || site.Status.ClusterVersion != release {
			t.Errorf("%+v, %v; want %s", site, err, release)
		}
	}
	if _, err := r.Upgrade(t.Context(), upgradeTo("v2", "99.0", "sha256:1")); err != nil {
		t.Fatal(err)
	}
	putHead(t, r, "99.0")
	want(trivet.CurrentRelease)
	reach(t, r, trivet.UpgradeSwitching)
	want(trivet.CurrentRelease)
	reach(t, r, trivet.UpgradeReverting)
	want(trivet.CurrentRelease)
	reach(t, r, trivet.UpgradeDone)
	if _, err := r.RollbackUpgrade(t.Context()); err != nil {
		t.Errorf("the version was not raised: %v", err)
	}
	want(trivet.CurrentRelease)
	reach(t, r, trivet.UpgradeReverted)
	want("99.0")
	if _, err := r.Upgrade(t.Context(), upgradeTo("v3", "99.1", "sha256:2")); err != nil {
		t.Fatal(err)
	}
	reach(t, r, trivet.UpgradeDone)
	if _, err := r.Store.Update(t.Context(), func(tx *store.Tx) error {
		h, err := r.Heads.In(tx).Get("head0")
		if err != nil {
			return err
		}
		h.Status.Program = &trivet.HeadProgram{Run: 2, Arch: "amd64", Running: "sha256:2"}
		return r.Heads.In(tx).Put(h)
	}); err != nil {
		t.Fatal(err)
	}
	again, err := r.Upgrade(t.Context(), upgradeTo("v3", "99.1", "sha256:2"))
	if err != nil || again.Spec.Run != 2 {
		t.Errorf("the same again is another upgrade: %+v, %v", again, err)
	}
	_, err = r.RollbackUpgrade(t.Context())
	if !errors.Is(err, trivet.ErrConflict) || !strings.Contains(err.Error(), "does not know") {
		t.Errorf("%v", err)
	}
	putHead(t, r, "99.1") // its package is another one now
	again, err = r.Upgrade(t.Context(), upgradeTo("v3", "99.1", "sha256:2"))
	if err != nil || again.Spec.Run != 3 {
		t.Errorf("the same again for a head that does not run it: %+v, %v", again, err)
	}
}

// What a witness reports of its program is bounded.
func TestProgramOfWitness(t *testing.T) {
	t.Parallel()
	good := &trivet.HeadProgram{Run: 1, Running: "sha256:1", Arch: "amd64"}
	long := *good
	long.Problem = strings.Repeat("x", 10000)
	for _, c := range []struct{ reported, want *trivet.HeadProgram }{{nil, nil}, {good, good}, {&long, nil}} {
		s := peer.Status{}
		s.Program = c.reported
		if got := programOf(&s); got != c.want {
			t.Errorf("%+v: %+v", c.reported, got)
		}
	}
}

// An upgrade that kept the platforms is requested again without that: they follow then, and no head starts again.
func TestPlatformsFollowLater(t *testing.T) {
	t.Parallel()
	r := upgrades(t)
	spec := upgradeTo("v2", trivet.CurrentRelease, "sha256:1")
	spec.KeepPlatforms = true
	if _, err := r.Upgrade(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	reach(t, r, trivet.UpgradeDone)
	if _, err := r.Tables.Store.Update(t.Context(), func(tx *store.Tx) error {
		h, err := r.Heads.In(tx).Get("head0")
		if err == nil {
			h.Status.Program = &trivet.HeadProgram{Run: 1, Arch: "amd64", Running: "sha256:1"}
			err = r.Heads.In(tx).Put(h)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	u, err := r.Upgrade(t.Context(), spec)
	if err != nil || u.PlatformsFollow() || u.NeedsPrograms() {
		t.Errorf("the same again: %+v, %v", u, err)
	}
	spec.KeepPlatforms = false
	u, err = r.Upgrade(t.Context(), spec)
	if err != nil || u.Spec.Run != 1 || !u.PlatformsFollow() || !u.NeedsPrograms() || u.InProgress() {
		t.Errorf("without --keep-platforms: %+v, %v", u, err)
	}
}
