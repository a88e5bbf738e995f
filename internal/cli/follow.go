package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// provisionState is the state of a provision that is being watched.
type provisionState struct {
	provision *trivet.Provision
	workflow  *trivet.Workflow   // nil: none yet
	progress  *trivet.Progress   // of the running action; nil: unknown
	place     *trivet.QueuePlace // of a provision that waits; nil: unknown
}

// view displays the state of a provision: on a terminal redrawn in place, otherwise as lines.
type view interface {
	show(p provisionState)
	close()
}

// tick is how often a terminal is redrawn and the progress of an action is requested.
const tick = time.Second

// placeTicks is after how many ticks the place in the queue is requested again.
const placeTicks = 5

// watchProvision displays a provision until it has ended.
func (a *app) watchProvision(ctx context.Context, cl *client.Client, name string) error {
	continues := fmt.Sprintf("provision %s continues; to watch it again: trivet provision%s %s --watch", name,
		a.flagText(), name)
	p, err := client.Of[trivet.Provision](cl).In(a.project()).Get(ctx, name)
	if err == nil && p.Spec.Count != nil {
		err = a.watchMembers(ctx, cl, name)
		return a.interrupted(ctx, err, "%s", continues)
	}
	if err != nil {
		return a.interrupted(ctx, err, "%s", continues)
	}
	v := a.view()
	last, err := followProvision(ctx, cl, a.project(), name, v)
	v.close()
	switch {
	case err != nil:
		return a.interrupted(ctx, err, "%s", continues)
	case last.provision.Status.State == trivet.ProvisionFailed:
		a.printFailure(last)
		return ExitError(1)
	}
	s := last.provision.Status
	fmt.Fprintf(a.Out, "provision %s succeeded on machine %s in %s\n", name, s.Machine,
		durationText(s.Ended.Sub(s.Started)))
	return nil
}

func (a *app) printFailure(p provisionState) {
	s := p.provision.Status
	fmt.Fprintf(a.Err, "provision %s failed: %s\n", p.provision.Name, printable(s.Reason))
	if s.Machine != "" {
		fmt.Fprintf(a.Err, "  hint: see trivet why %s and trivet logs%s %s\n", s.Machine, a.flagText(), s.Workflow)
	}
	fmt.Fprintf(a.Err, "  hint: when the cause is gone: trivet retry%s %s\n", a.flagText(), p.provision.Name)
}

func (a *app) view() view {
	if width, ok := a.terminal(); ok {
		return newScreen(a.screen, width)
	}
	return &lines{out: a.Out, shown: map[string]string{}}
}

// feed is one watch in a separate goroutine.
type feed struct {
	events chan client.Event
	err    error // valid once events is closed
	stop   context.CancelFunc
	done   sync.WaitGroup
}

func newFeed(ctx context.Context, cl *client.Client, kind trivet.Kind, project, name string) *feed {
	ctx, stop := context.WithCancel(ctx)
	f := &feed{events: make(chan client.Event), stop: stop}
	o := client.WatchOptions{Kinds: []trivet.Kind{kind}, Project: project, Names: []string{name}}
	f.done.Go(func() {
		defer close(f.events)
		for e, err := range cl.Watch(ctx, o) {
			if err != nil {
				f.err = err
				return
			}
			select {
			case f.events <- e:
			case <-ctx.Done():
				return
			}
		}
	})
	return f
}

func (f *feed) close() {
	f.stop()
	f.done.Wait()
}

// followProvision displays the provision and its newest workflow until the provision has ended, and returns the last
// state.
func followProvision(ctx context.Context, cl *client.Client, project, name string, v view) (
	last provisionState, err error) {
	provisions := newFeed(ctx, cl, "Provision", project, name)
	defer provisions.close()
	workflows := &feed{stop: func() {}}
	defer func() { workflows.close() }()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for ticks := 0; ; {
		select {
		case e, ok := <-provisions.events:
			switch {
			case !ok:
				return last, errors.Join(provisions.err, context.Cause(ctx))
			case e.Type == client.Delete:
				return last, fmt.Errorf("provision %s: %w: it was deleted", name, trivet.ErrNotFound)
			case e.Type != client.Put:
				continue
			}
			last.provision = e.Record.(*trivet.Provision)
			if w := last.provision.Status.Workflow; w != "" && (last.workflow == nil || last.workflow.Name != w) {
				workflows.close()
				workflows = newFeed(ctx, cl, "Workflow", project, w)
				last.workflow = &trivet.Workflow{Meta: trivet.Meta{Name: w}}
			}
		case e, ok := <-workflows.events:
			if !ok {
				return last, errors.Join(workflows.err, context.Cause(ctx))
			}
			if e.Type == client.Put {
				last.workflow, last.progress = e.Record.(*trivet.Workflow), nil
			}
		case <-ticker.C:
			last.progress = progressOf(ctx, cl, last)
			if ticks%placeTicks == 0 {
				last.place = queueOf(ctx, cl, last)
			}
			ticks++
		}
		if last.provision == nil {
			continue
		}
		v.show(last)
		if last.provision.Status.State.Ended() && (last.workflow == nil || last.workflow.Status.State.Ended()) {
			return last, nil
		}
	}
}

// queueOf requests the place of a provision that waits. It is optional: on error, it returns the last place.
func queueOf(ctx context.Context, cl *client.Client, p provisionState) *trivet.QueuePlace {
	if p.provision == nil || !p.provision.Status.State.Waits() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, tick)
	defer cancel()
	place, err := cl.QueuePlace(ctx, p.provision.Project, p.provision.Name)
	if err != nil {
		return p.place
	}
	return place
}

// progressOf requests the progress of a running action. It is optional: on error, it returns the last progress.
func progressOf(ctx context.Context, cl *client.Client, p provisionState) *trivet.Progress {
	if p.workflow == nil || p.workflow.Status.State != trivet.WorkflowRunning {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, tick)
	defer cancel()
	progress, err := cl.Progress(ctx, p.workflow.Spec.Machine)
	if err != nil {
		return p.progress
	}
	return progress
}
