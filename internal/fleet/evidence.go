package fleet

import (
	"context"
	"errors"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// What machines share keeps the machines that failed with it, in its own status, until one succeeds: one record
// distinguishes a broken platform from a broken machine, without a search among runs. It is read and written by the
// transaction that ends the run, so that of two failures at the same time one sees the other.

// shared is a record that machines share, within a transaction.
type shared struct {
	kind       trivet.Kind
	name       string // full
	what       string // "platform p1"
	generation int64
	failures   **trivet.SharedFailures
	put        func() error
}

// sharedRecord reads a shared record; it is nil where there is none.
func sharedRecord[T any](table store.View[T], name string, failures func(*T) **trivet.SharedFailures) (*shared, error) {
	if name == "" {
		return nil, nil
	}
	rec, err := table.Get(name)
	if errors.Is(err, trivet.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := any(rec).(trivet.Record)
	kind := trivet.KindOf(r)
	what := strings.ToLower(string(kind)) + " " + trivet.ShortName(name)
	if kind == "Site" {
		what = "the power of machines"
	}
	return &shared{kind: kind, name: r.Header().FullName(), what: what, generation: r.Header().Generation, failures: failures(rec),
		put: func() error { return table.Put(rec) }}, nil
}

// sharedOf reads the records of a kind that the machine of a transition shares with others.
func (f *Fleet) sharedOf(t *transition, kind trivet.Kind) (all []*shared, err error) {
	add := func(s *shared, e error) {
		if err = errors.Join(err, e); s != nil {
			all = append(all, s)
		}
	}
	switch kind {
	case "Site":
		add(sharedRecord(f.Sites.In(t.tx), trivet.SiteName, powerFailures))
	case "Network":
		add(sharedRecord(f.Networks.In(t.tx), f.networkName(t.machine), networkFailures))
	case "Platform":
		add(sharedRecord(f.Platforms.In(t.tx), t.site.PlatformOf(t.machine), platformFailures))
	case "Image":
		for _, name := range imagesOf(t.workflow) {
			add(sharedRecord(f.Images.In(t.tx), name, imageFailures))
		}
	}
	return all, err
}

func powerFailures(r *trivet.Site) **trivet.SharedFailures        { return &r.Status.PowerFailures }
func networkFailures(r *trivet.Network) **trivet.SharedFailures   { return &r.Status.Failures }
func platformFailures(r *trivet.Platform) **trivet.SharedFailures { return &r.Status.Failures }
func imageFailures(r *trivet.Image) **trivet.SharedFailures       { return &r.Status.Failures }

// imagesOf returns the full names of the images of a run; none where there is no run.
func imagesOf(w *trivet.Workflow) (names []string) {
	if w == nil {
		return nil
	}
	for i := range w.Spec.Images {
		names = append(names, trivet.Resolve(w.Project, w.Spec.Images[i].Name))
	}
	return names
}

// weigh decides between the machine and what it shares with others. If another machine has succeeded with that since
// the machine began to try, it works. Otherwise the failure is added to those of others: where several have failed, and
// none succeeded, what they share is at fault, and the first of them was not.
func (f *Fleet) weigh(t *transition) error {
	failure := t.workflow.Status.Failure
	kind := workflow.SharedBy(failure)
	all, err := f.sharedOf(t, kind)
	if err != nil {
		return err
	}
	since := workflow.TriedSince(&t.workflow.Status)
	for _, s := range all {
		if f.worked.since(sharedKey(s.kind, s.name), since) {
			continue
		}
		before := workflow.AtFault(s.what, *s.failures, s.generation)
		*s.failures = workflow.AddFailure(*s.failures, s.generation, t.machine.Name, failure, f.now())
		if err := s.put(); err != nil {
			return err
		}
		why := workflow.AtFault(s.what, *s.failures, s.generation)
		if why == "" {
			continue
		}
		workflow.Blame(failure, kind, why)
		if before == "" {
			if err := f.exonerate(t, s, why); err != nil {
				return err
			}
		}
	}
	return nil
}

// succeeded forgets the failures with what the machine shares with others: it works.
func (f *Fleet) succeeded(t *transition, kinds ...trivet.Kind) error {
	for _, kind := range kinds {
		all, err := f.sharedOf(t, kind)
		if err != nil {
			return err
		}
		for _, s := range all {
			if *s.failures == nil {
				continue
			}
			*s.failures = nil
			if err := s.put(); err != nil {
				return err
			}
		}
	}
	return nil
}

// unusable returns what the machine shares with others and is at fault, for a new run; nil where nothing is.
func (f *Fleet) unusable(t *transition) (*faultError, error) {
	for _, kind := range []trivet.Kind{"Network", "Platform", "Image"} {
		all, err := f.sharedOf(t, kind)
		if err != nil {
			return nil, err
		}
		for _, s := range all {
			if why := workflow.AtFault(s.what, *s.failures, s.generation); why != "" {
				return &faultError{kind, s.what, why}, nil
			}
		}
	}
	return nil, nil
}

// avoided returns why a machine must not be claimed by a selector now: its disks hold data, or what this head knows of
// its platform and network; empty where it may.
func (f *Fleet) avoided(m *trivet.Machine) string {
	if m.Status.HoldsData != "" {
		return "holding data that is kept"
	}
	if _, why := f.faultAround(m); why != "" {
		return "not used, as " + why
	}
	return ""
}

// faultAround returns what a machine shares with others and is at fault, as far as this head knows, and why; empty
// where nothing is.
func (f *Fleet) faultAround(m *trivet.Machine) (kind trivet.Kind, why string) {
	site := f.site()
	if p, err := f.Platforms.GetShared(site.PlatformOf(m)); err == nil {
		kind, why = "Platform", workflow.AtFault("platform "+p.Name, p.Status.Failures, p.Generation)
	}
	if n, err := f.Networks.GetShared(f.networkName(m)); err == nil && why == "" {
		kind, why = "Network", workflow.AtFault("network "+n.Name, n.Status.Failures, n.Generation)
	}
	return kind, why
}

// networkName returns the network that the machine has an address in, or will have by its record; empty where none is
// known.
func (f *Fleet) networkName(m *trivet.Machine) string {
	for _, nic := range m.Spec.NICs {
		for _, a := range f.Addresses.SharedBy(state.ByMAC, nic.MAC) {
			if !a.Status.Declined {
				return a.Spec.Network
			}
		}
	}
	for _, nic := range m.Spec.NICs {
		if n := f.NetworkAround(nic.Address); n != nil {
			return n.Name
		}
	}
	return ""
}

// KeepConsole adds the last lines of the machine's serial console to the failure of a run.
func (f *Fleet) KeepConsole(ctx context.Context, run, uid, text string) error {
	return f.keepEvidence(ctx, run, uid, text, "", func(failure *trivet.Failure) *string { return &failure.Console })
}

// KeepEventLog adds the last entries of the event log of the machine's BMC to the failure of a run.
func (f *Fleet) KeepEventLog(ctx context.Context, run, uid, text string) error {
	return f.keepEvidence(ctx, run, uid, text, trivet.EventLogRelease,
		func(failure *trivet.Failure) *string { return &failure.EventLog })
}

// keepEvidence writes a field of a failure once, if all heads have the release that added it.
func (f *Fleet) keepEvidence(ctx context.Context, run, uid, text string, since trivet.Release,
	field func(*trivet.Failure) *string) error {
	return f.update(ctx, func(tx *store.Tx) error {
		w, err := f.Workflows.In(tx).Get(run)
		switch {
		case errors.Is(err, trivet.ErrNotFound):
			return errUnchanged
		case err != nil:
			return err
		case w.UID != uid || w.Status.Failure == nil || *field(w.Status.Failure) != "",
			since.Compare(tx.ClusterVersion()) > 0:
			return errUnchanged
		}
		*field(w.Status.Failure) = text
		return f.Workflows.In(tx).Put(w)
	})
}
