package provider

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// await waits until a provision has ended, and returns it as it was last read, also with an error; nil: it was not.
func (r *record) await(ctx context.Context, m *model, limit time.Duration) (*document, error) {
	until, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	w := &waiting{uid: m.uid.ValueString()}
	err := w.run(until, r.client, client.WatchOptions{Kinds: []trivet.Kind{r.info.Kind},
		Project: m.project.ValueString(), Names: []string{m.name.ValueString()}})
	switch {
	case ctx.Err() != nil:
		err = w.interrupted(errors.New("interrupted"))
	case until.Err() != nil:
		err = w.interrupted(fmt.Errorf("it has not ended after %s", limit))
	}
	if w.last == nil {
		return nil, err
	}
	d, docErr := documentOf(w.last)
	return d, errors.Join(err, docErr)
}

// waiting follows a provision.
type waiting struct {
	uid    string
	last   *trivet.Provision // as it was last read; nil: it does not exist
	synced bool
}

func (w *waiting) run(ctx context.Context, c *client.Client, o client.WatchOptions) error {
	for e, err := range c.Watch(ctx, o) {
		if err != nil {
			return err
		}
		switch w.apply(e); {
		case !w.synced:
		case w.last == nil || w.last.UID != w.uid:
			return fmt.Errorf("%w: it was deleted while Terraform waited for it", trivet.ErrNotFound)
		case w.last.Status.State == trivet.ProvisionSucceeded:
			return nil
		case w.last.Status.State == trivet.ProvisionFailed:
			return w.failed()
		case w.last.Status.State == trivet.ProvisionFrozen:
			return &trivet.Error{Op: "wait for", Kind: w.last.Kind, Name: w.last.ShortName(), Hint: "trivet recover resolve",
				Err: errors.New("it is frozen: the cluster was recovered, and an operator must decide")}
		}
	}
	return ctx.Err()
}

func (w *waiting) apply(e client.Event) {
	switch e.Type {
	case client.Put:
		w.last, _ = e.Record.(*trivet.Provision)
	case client.Delete:
		w.last = nil
	case client.Synced:
		w.synced = true
	case client.Reset:
		w.last, w.synced = nil, false
	}
}

// failed returns why the provision has failed.
func (w *waiting) failed() error {
	text := w.last.Status.Reason
	if f := w.last.Status.Failure; f != nil {
		text = fmt.Sprintf("%s\nstep %s: %s (at fault: %s)", text, f.Step, f.Cause, f.Type)
	}
	return &trivet.Error{Op: "install", Kind: w.last.Kind, Name: w.last.ShortName(), Err: fmt.Errorf("failed: %s", text),
		Hint: w.why()}
}

// interrupted returns the error of a wait that has ended before the provision did. That continues.
func (w *waiting) interrupted(err error) error {
	if w.last == nil {
		return err
	}
	state := string(w.last.Status.State)
	if state == "" {
		state = string(trivet.ProvisionPending)
	}
	return &trivet.Error{Op: "wait for", Kind: w.last.Kind, Name: w.last.ShortName(),
		Err: fmt.Errorf("%w; it is %s: %s", err, state, w.last.Status.Reason),
		Hint: w.why() + ". It continues. Terraform replaces it at the next apply; to keep it, run terraform untaint " +
			"once it has succeeded"}
}

func (w *waiting) why() string {
	name := w.last.Name
	if w.last.Project != trivet.DefaultProject {
		name = "-p " + w.last.Project + " " + name
	}
	return "trivet why " + name + " shows each step"
}
