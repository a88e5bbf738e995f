package cluster

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// followed are the kinds that are watched.
var followed = []trivet.Kind{"Template", "Machine", "Provision", "Workflow", "Address"}

// lastKey is written when all else is over: a watch that has seen it has seen everything.
const lastKey = "zz-last"

// markKey is written where a section ends that is followed once more.
const markKey = "zz-mark"

// follow follows all changes from the beginning until the last one, on any heads.
func (l *load) follow(name string) {
	c, err := l.site.client(0, l.site.heads...)
	if err != nil {
		l.history.trouble(name, err)
		return
	}
	defer c.Close()
	err = watchAll(l.feeding, c, l.from, isLast, func(x change) {
		x.At = l.history.now()
		l.history.note(func(h *History) { h.Feeds[name] = append(h.Feeds[name], x) })
	})
	if err != nil && l.feeding.Err() == nil {
		failed := change{Type: "error", Name: err.Error()}
		l.history.note(func(h *History) { h.Feeds[name] = append(h.Feeds[name], failed) })
	}
}

func isLast(c change) bool { return c.Name == lastKey }

// watchAll emits every change after a revision up to the last one.
func watchAll(ctx context.Context, c *client.Client, from int64, last func(change) bool, emit func(change)) error {
	for e, err := range c.Watch(ctx, client.WatchOptions{Kinds: followed, From: from}) {
		if err != nil {
			return err
		}
		x := changeOf(e)
		emit(x)
		if last(x) {
			return nil
		}
	}
	return nil
}

// changeOf keeps of an event what is checked.
func changeOf(e client.Event) change {
	x := change{Revision: e.Revision, Type: string(e.Type), Kind: string(e.Kind), Name: e.Name,
		Sum: crc32.ChecksumIEEE(e.Raw)}
	switch r := e.Record.(type) {
	case *trivet.Template:
		x.Value = r.Labels["v"]
	case *trivet.Machine:
		x.State, x.Epoch, x.Power = string(r.Status.State), r.Status.Epoch, r.Status.Power
		if i := r.Status.Intent; i != nil && i.Off {
			x.Intent = "on"
		} else if i != nil {
			x.Intent = i.Want
		}
	case *trivet.Provision:
		x.State, x.Machine = string(r.Status.State), r.Status.Machine
	case *trivet.Address:
		x.Machine = r.Spec.MAC
	case *trivet.Workflow:
		x.State, x.Machine, x.Epoch, x.Acked = string(r.Status.State), r.Spec.Machine, r.Status.Epoch, r.Status.Acked
		if now := r.Status.Current(); now != nil {
			x.Step = now.Name
		}
		x.Steps = map[string]stepReport{}
		for _, s := range r.Status.Steps {
			if !trivet.IsBootStep(s.Name) && s.State != trivet.StepWaiting {
				x.Steps[s.Name] = stepReport{s.State, s.Attempt}
			}
		}
	}
	return x
}

// sectionTime is the time of one section of what is followed once more. A watch resumes only from what was not
// compacted: in a full store that is half a minute. And a head that was started again since then answers for a thousand
// revisions before its start.
const sectionTime = 3 * time.Second

// followAgain follows everything once more, in sections, with a watch of its own for each. What it cannot follow now
// is left to the next one, which begins at once and may take twice as long: otherwise a backlog that one section could
// not read would only grow.
func (l *load) followAgain() {
	limit := l.sections
	for n := 0; !l.over(); n++ {
		if l.followOn(n, limit) {
			limit = l.sections
			l.pause(l.sections)
		} else {
			limit = min(2*limit, maxSectionTime)
			l.pause(sectionPause)
		}
	}
}

const (
	maxSectionTime = 30 * time.Second
	sectionPause   = 100 * time.Millisecond // after a section that failed
)

// followOn follows the n-th section, and reports whether it could.
func (l *load) followOn(n int, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(l.ctx, limit)
	defer cancel()
	mark, err := client.Of[trivet.Template](l.sdk).Patch(ctx, markKey, valuePatch(fmt.Sprint("mark", n)), 0)
	if err == nil {
		err = l.section(ctx, func(c change) bool { return c.Name == markKey && c.Revision >= mark.Revision })
	}
	return err == nil
}

var errCompacted = errors.New("it was compacted")

// section follows everything once more, from the end of the section before, by any head or by the first that can.
func (l *load) section(ctx context.Context, last func(change) bool) error {
	err := l.sectionBy(ctx, l.sdk, last)
	for _, h := range l.site.heads {
		if !errors.Is(err, errCompacted) {
			break
		}
		c, clientErr := l.site.client(-1, h)
		if clientErr != nil {
			return clientErr
		}
		if of := l.sectionBy(ctx, c, last); of == nil || errors.Is(of, errCompacted) {
			err = of
		}
		c.Close()
	}
	return err
}

// sectionBy does so by the heads of a client.
func (l *load) sectionBy(ctx context.Context, by *client.Client, last func(change) bool) error {
	var got []change
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := watchAll(ctx, by, l.whole, last, func(c change) {
		if got = append(got, c); c.Type == string(client.Reset) {
			cancel(errCompacted)
		}
	})
	if err != nil {
		return err
	}
	got, l.whole = sectionOf(got)
	l.history.note(func(h *History) { h.Whole = append(h.Whole, got...) })
	return nil
}

// sectionOf returns what a section keeps of the changes up to its mark, and the revision from which the next one
// continues. Other changes may have the mark's revision and follow it, since writes share transactions: the next section
// follows that revision, the mark included. Nothing is written beside the last change.
func sectionOf(got []change) (kept []change, upTo int64) {
	end := got[len(got)-1]
	if isLast(end) {
		return got, end.Revision
	}
	at := slices.IndexFunc(got, func(c change) bool { return c.Revision == end.Revision })
	return got[:at], end.Revision - 1
}

// mark writes the last change, follows everything once more, and waits until every watch has seen it.
func (l *load) mark(ctx context.Context) error {
	if err := l.make(ctx, keyRecord(lastKey, "last")); err != nil {
		return err
	}
	switch err := l.section(ctx, isLast); {
	case errors.Is(err, errCompacted):
		l.history.note(func(h *History) { h.Cut = true })
	case err != nil:
		return fmt.Errorf("follow everything once more: %w", err)
	}
	seen := make(chan struct{})
	go func() { l.feeds.Wait(); close(seen) }()
	select {
	case <-seen:
		return nil
	case <-ctx.Done(): // what they miss is seen in the history
		l.unfeed()
		<-seen
		return nil
	}
}
