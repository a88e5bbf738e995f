package cluster

import (
	"context"
	"fmt"
	"hash/crc32"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// followed are the kinds that are watched.
var followed = []trivet.Kind{"Template", "Machine", "Provision", "Workflow", "Address"}

// lastKey is written when all else is over: a watch that has seen it has seen everything.
const lastKey = "zz-last"

// follow follows all changes from the beginning until the last one, on any heads.
func (l *load) follow(name string) {
	c, err := l.site.client(0, l.site.heads...)
	if err != nil {
		l.history.trouble(name, err)
		return
	}
	defer c.Close()
	err = watchAll(l.feeding, c, l.from, func(x change) {
		l.history.note(func(h *History) { h.Feeds[name] = append(h.Feeds[name], x) })
	})
	if err != nil && l.feeding.Err() == nil {
		failed := change{Type: "error", Name: err.Error()}
		l.history.note(func(h *History) { h.Feeds[name] = append(h.Feeds[name], failed) })
	}
}

// watchAll emits every change after a revision up to that of lastKey.
func watchAll(ctx context.Context, c *client.Client, from int64, emit func(change)) error {
	for e, err := range c.Watch(ctx, client.WatchOptions{Kinds: followed, From: from}) {
		if err != nil {
			return err
		}
		emit(changeOf(e))
		if e.Name == lastKey {
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
		x.State, x.Epoch = string(r.Status.State), r.Status.Epoch
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

// mark writes the last change, waits until every watch has seen it, and follows everything once more.
func (l *load) mark(ctx context.Context) error {
	if err := l.make(ctx, keyRecord(lastKey, "last")); err != nil {
		return err
	}
	err := watchAll(ctx, l.sdk, l.from, func(x change) {
		l.history.note(func(h *History) { h.Whole = append(h.Whole, x) })
	})
	if err != nil {
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
