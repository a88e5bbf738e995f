package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"

	"github.com/trivet-project/trivet"
)

// Own is the program of this head, as upgrades replace it.
type Own struct {
	*Dir // nil: this process is not a head's only, and Manual
	// Manual: this head does not permit upgrades by command.
	Manual bool
	// Open returns the content of a blob. It fails with ErrNotFound while this head cannot get it yet.
	Open func(ctx context.Context, blob trivet.BlobRef) (io.ReadCloser, error)

	running string // digest of the program of this process, once it is known
	failed  int64  // the upgrade whose program this head cannot run, for reason
	reason  string
}

// Report returns what this head reports of an upgrade, and stages the new program where the head does not have it yet.
func (o *Own) Report(ctx context.Context, u *trivet.Upgrade) trivet.HeadProgram {
	p := trivet.HeadProgram{Run: u.Spec.Run, Arch: runtime.GOARCH, Manual: o.Manual}
	if o.Manual {
		return p
	}
	var err error
	if o.running == "" {
		if o.running, err = o.Running(); err != nil {
			return o.fail(p, err)
		}
	}
	p.Running, p.Former = o.running, o.CanGoBack(u.Spec.Run)
	blob, ok := u.Spec.ProgramFor(p.Arch)
	if p.Problem, err = o.GivenUp(u.Spec.Run, blob.Digest); err != nil {
		return o.fail(p, err)
	}
	if p.Problem != "" {
		p.Failed = true
		return p
	}
	if o.failed == u.Spec.Run {
		p.Failed, p.Problem = true, o.reason
		return p
	}
	switch {
	case !ok:
		return o.fail(p, fmt.Errorf("%w: the upgrade has no program for %s", trivet.ErrInvalid, p.Arch))
	case p.Running == blob.Digest || o.Has(blob.Digest):
		p.Staged = true
	case u.NeedsPrograms():
		if err := o.stage(ctx, u, blob); err != nil {
			return o.fail(p, err)
		}
		p.Staged = o.Has(blob.Digest)
	}
	return p
}

// Confirm records that the program of this process works.
func (o *Own) Confirm() error {
	if o.Dir == nil {
		return nil
	}
	return o.Dir.Confirm()
}

// stage stores the new program, once this head can get it.
func (o *Own) stage(ctx context.Context, u *trivet.Upgrade, blob trivet.BlobRef) error {
	content, err := o.Open(ctx, blob)
	if errors.Is(err, trivet.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer content.Close()
	return o.Stage(ctx, blob.Digest, Version{u.Spec.Version, u.Spec.Release}, content)
}

// fail reports a problem. One that a repetition cannot solve is kept for the upgrade.
func (o *Own) fail(p trivet.HeadProgram, err error) trivet.HeadProgram {
	p.Problem = short(err.Error())
	if errors.Is(err, trivet.ErrInvalid) {
		p.Failed, o.failed, o.reason = true, p.Run, p.Problem
	}
	return p
}

// Follow returns what makes the next start of this head follow an upgrade, where that names the head; nil: nothing is
// to be done. p is what the head reports of it.
func (o *Own) Follow(u *trivet.Upgrade, head string, p *trivet.HeadProgram) func() error {
	blob, ok := u.Spec.ProgramFor(p.Arch)
	runs := ok && p.Running == blob.Digest
	switch {
	case p.Manual || u.Status.Run != u.Spec.Run:
	case u.Status.Phase == trivet.UpgradeReverted && runs && p.Former: // it was off while the others went back
		return func() error { return o.GiveUp(u.Status.Cause) }
	case u.Status.Head != head:
	case u.Status.Phase == trivet.UpgradeSwitching && !runs && p.Staged && !p.Failed:
		return func() error { return o.Select(u.Spec.Run, blob.Digest) }
	case u.Status.Phase == trivet.UpgradeReverting && runs && p.Former:
		return func() error { return o.GiveUp(u.Status.Cause) }
	}
	return nil
}

// short bounds a text that a record keeps, in one line.
func short(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	return strings.ToValidUTF8(text[:min(len(text), maxProblem)], "")
}
