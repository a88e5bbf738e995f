package membership

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// Upgrade requests an upgrade of all heads, and returns its record. It is refused while another one is in progress; the
// same one is returned.
func (r *Records) Upgrade(ctx context.Context, spec trivet.UpgradeSpec) (*trivet.Upgrade, error) {
	return r.changeUpgrade(ctx, func(tx *store.Tx, u *trivet.Upgrade) error {
		if !u.Spec.Rollback && sameProgram(&u.Spec, &spec) {
			all, err := r.allRunNew(tx, u)
			if err == nil && all && u.Spec.KeepPlatforms && !spec.KeepPlatforms {
				u.Spec.KeepPlatforms = false // the platforms follow now
				return nil
			}
			if err != nil || all || u.InProgress() { // a second upgrade would forget the former program
				return cmp.Or(err, errUnchanged)
			}
		}
		if u.InProgress() {
			return errUpgrade(trivet.ErrConflict, "the upgrade to "+u.Spec.Version+" is in progress",
				"wait for it, or end it: trivet upgrade rollback")
		}
		if reached := tx.ClusterVersion(); spec.Release.Compare(reached) < 0 {
			return errUpgrade(trivet.ErrInvalid, fmt.Sprintf("%s is of release %s, and the cluster uses what release %s added",
				spec.Version, spec.Release, reached), "upgrade to that release, or a later one")
		}
		spec.Run, spec.Paused, spec.Rollback = u.Spec.Run+1, false, false
		u.Spec = spec
		return nil
	})
}

// allRunNew reports whether all members run the program of an upgrade that is complete.
func (r *Records) allRunNew(tx *store.Tx, u *trivet.Upgrade) (bool, error) {
	if u.Status.Phase != trivet.UpgradeDone {
		return false, nil
	}
	for _, listed := range r.Heads.In(tx).ListBy(state.ByMember, state.IsMember) {
		h, err := r.Heads.In(tx).Get(listed.Name)
		if err != nil || !h.Spec.Remove && !u.RunsNew(h) {
			return false, err
		}
	}
	return true, nil
}

func sameProgram(a, b *trivet.UpgradeSpec) bool {
	if len(a.Programs) != len(b.Programs) {
		return false
	}
	for i := range a.Programs {
		if a.Programs[i].Arch != b.Programs[i].Arch || a.Programs[i].Blob.Digest != b.Programs[i].Blob.Digest {
			return false
		}
	}
	return true
}

// PauseUpgrade lets no further head start again with the new program, or lets the upgrade go on.
func (r *Records) PauseUpgrade(ctx context.Context, pause bool) (*trivet.Upgrade, error) {
	return r.changeUpgrade(ctx, func(_ *store.Tx, u *trivet.Upgrade) error {
		switch {
		case !u.InProgress():
			return errUpgrade(trivet.ErrConflict, "no upgrade is in progress", "to begin one: trivet upgrade run FILE")
		case u.Spec.Rollback || u.Status.Run == u.Spec.Run && u.Status.Phase == trivet.UpgradeReverting:
			return errUpgrade(trivet.ErrConflict, "the heads go back to their former program, which is not paused",
				"to follow it: trivet upgrade status")
		case u.Spec.Paused == pause:
			return errUnchanged
		}
		u.Spec.Paused = pause
		return nil
	})
}

// RollbackUpgrade lets the heads go back to their former program.
func (r *Records) RollbackUpgrade(ctx context.Context) (*trivet.Upgrade, error) {
	return r.changeUpgrade(ctx, func(tx *store.Tx, u *trivet.Upgrade) error {
		switch {
		case u.Spec.Run == 0 || u.Status.Phase == trivet.UpgradeReverted && u.Spec.Run == u.Status.Run:
			return errUpgrade(trivet.ErrConflict, "no upgrade is in progress or complete", "")
		case u.Spec.Rollback:
			return errUnchanged
		case !u.InProgress() && u.Status.Former.Compare(tx.ClusterVersion()) < 0:
			return errUpgrade(trivet.ErrConflict, fmt.Sprintf("the upgrade is complete, and the cluster uses what release %s "+
				"added; the former program is of release %s, which does not know that", tx.ClusterVersion(), u.Status.Former),
				"upgrade to a program of this release, or a later one")
		}
		u.Spec.Rollback, u.Spec.Paused = true, false
		return nil
	})
}

func errUpgrade(class error, problem, hint string) error {
	return &trivet.Error{Op: "upgrade", Hint: hint, Err: fmt.Errorf("%w: %s", class, problem)}
}

// changeUpgrade changes the record in one transaction, and returns it.
func (r *Records) changeUpgrade(ctx context.Context, do func(*store.Tx, *trivet.Upgrade) error) (u *trivet.Upgrade,
	err error) {
	err = r.update(ctx, func(tx *store.Tx) error {
		u, err = r.Upgrades.In(tx).Get(trivet.UpgradeName)
		if errors.Is(err, trivet.ErrNotFound) {
			u, err = &trivet.Upgrade{Meta: trivet.Meta{Name: trivet.UpgradeName}}, nil
		}
		if err == nil {
			err = do(tx, u)
		}
		if err == nil {
			err = u.Validate()
		}
		if err != nil {
			return err
		}
		return r.Upgrades.In(tx).Put(u)
	})
	return u, err
}
