package fleet

import (
	"context"
	"errors"
	"maps"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/provision"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// faultError: what machines share is at fault, so that no provision by selector uses it.
type faultError struct {
	kind trivet.Kind
	what string // "image os"
	why  string
}

func (e *faultError) Error() string {
	return e.why + ": no machine is used for a provision by selector until it is changed, or one that names a machine " +
		"gets on with it"
}

// waitsFor returns what the provision waits for: an image, which is its own choice. Of a platform or network it waits
// for a machine with another one.
func (e *faultError) waitsFor() string {
	if e.kind == "Image" {
		return e.what
	}
	return ""
}

// checkShared refuses a provision by selector where what machines share is at fault. One that names its machine tries
// it: that it succeeds is how others know that the fault is gone.
func (f *Fleet) checkShared(t *transition, p *trivet.Provision) error {
	if p.Spec.Machine != "" {
		return nil
	}
	fault, err := f.unusable(t)
	if err == nil && fault != nil {
		err = fault
	}
	return err
}

// setPending writes into a provision why it has no machine.
func (f *Fleet) setPending(ctx context.Context, p *trivet.Provision, why string) error {
	if st := &p.Status; st.State == trivet.ProvisionPending && st.Reason == why && st.WaitsFor == "" {
		return nil
	}
	return f.update(ctx, func(tx *store.Tx) error { return f.wait(tx, p.FullName(), why, "") })
}

func (f *Fleet) wait(tx *store.Tx, name, why, waitsFor string) error {
	p, err := f.Provisions.In(tx).Get(name)
	if errors.Is(err, trivet.ErrNotFound) || err == nil && !p.Waits() {
		return errUnchanged
	}
	if err != nil {
		return err
	}
	p.Status.State, p.Status.Reason = trivet.ProvisionPending, why
	p.Status.WaitsFor, p.Status.WaitsGeneration = waitsFor, 0
	if waitsFor != "" {
		p.Status.WaitsGeneration = p.Generation
	}
	return f.putProvision(tx, p)
}

// reject ends a provision that no machine could serve.
func (f *Fleet) reject(tx *store.Tx, name string, cause error) error {
	return f.endWaiting(tx, name, failing(trivet.FaultConfiguration, cause.Error()))
}

// stopWaiting lets a provision wait for a machine again where the image that it waits for is not at fault any more, or
// where the provision or its template were changed and may use another one.
func (f *Fleet) stopWaiting(ctx context.Context, p *trivet.Provision) error {
	if strings.HasPrefix(p.Status.WaitsFor, provision.PowerOf("")) {
		return f.stopPowerWait(ctx, p)
	}
	t, err := f.Templates.GetShared(trivet.Resolve(p.Project, p.Spec.Template))
	same := err == nil && t.Revision < p.Revision && p.Status.WaitsGeneration == p.Generation
	if same && f.imageFault(p.Status.WaitsFor) != "" {
		return nil
	}
	return f.setPending(ctx, p, "it waits for a machine again, and no longer for "+p.Status.WaitsFor)
}

// imageFault returns why "image NAME" is at fault, as far as this head knows; empty where it is not.
func (f *Fleet) imageFault(what string) string {
	image, err := f.Images.GetShared(trivet.Resolve("", strings.TrimPrefix(what, "image ")))
	if err != nil {
		return ""
	}
	return workflow.AtFault(what, image.Status.Failures, image.Generation)
}

// Recheck claims a machine for those of a page of waiting provisions that can have one now, and updates the reasons of
// the others. It returns the last provision of the page; nil where there are no more. It finds those whose machine
// became available unnoticed, as the heads were killed at that moment. Provisions with one selector cost one search.
func (f *Fleet) Recheck(ctx context.Context, after *trivet.Provision, page int) (last *trivet.Provision, err error) {
	why := ""
	for p := range f.Waiting(after) {
		if page--; page < 0 {
			return last, err
		}
		var failed error
		if why != "" && p.Status.WaitsFor == "" && sameChoice(last, p) {
			failed = f.noMachine(ctx, p, why)
		} else {
			why, failed = f.consider(ctx, p)
		}
		if !errors.Is(failed, trivet.ErrConflict) { // the next recheck finds it
			err = errors.Join(err, failed)
		}
		last = p
	}
	return nil, err
}

func sameChoice(p, other *trivet.Provision) bool {
	return provision.Last(&p.Status) == nil && provision.Last(&other.Status) == nil && p.Status.Failure == nil &&
		other.Status.Failure == nil && p.Spec.Machine == other.Spec.Machine &&
		maps.Equal(p.Spec.Selector, other.Spec.Selector)
}
