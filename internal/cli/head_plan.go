package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/invariant"
)

// planLeave shows what it means that a head is removed, or replaced. It fails where the heads would refuse it.
func (a *app) planLeave(ctx context.Context, name string, replaced bool) error {
	cl, err := a.connect()
	if err != nil {
		return err
	}
	l, err := leaving(ctx, cl, name, replaced)
	if err != nil {
		return err
	}
	if a.output == "table" {
		fmt.Fprint(a.Out, leaveText(l))
	} else if err := a.showValue(l); err != nil {
		return err
	}
	if l.Refused != "" {
		return ExitError(1)
	}
	return nil
}

// confirmRemove shows the plan of a removal, and asks, unless the heads would refuse it.
func (a *app) confirmRemove(ctx context.Context, cl *client.Client, name string) error {
	l, err := leaving(ctx, cl, name, false)
	if err != nil {
		return err
	}
	if l.Refused != "" {
		fmt.Fprint(a.Err, leaveText(l))
		return &trivet.Error{Op: "remove", Kind: "Head", Name: name, Hint: l.Remedy,
			Err: fmt.Errorf("%w: %s", trivet.ErrConflict, l.Refused)}
	}
	return a.confirm(ctx, "remove", leaveText(l))
}

func leaving(ctx context.Context, cl *client.Client, name string, replaced bool) (*invariant.Leave, error) {
	s, err := cl.Status(ctx)
	if err != nil {
		return nil, err
	}
	l, err := invariant.Leaving(&s.Facts, name, replaced)
	op := "remove"
	if replaced {
		op = "replace"
	}
	return l, noSuchHead(err, op, name)
}

// leaveText is a plan for people.
func leaveText(l *invariant.Leave) string {
	var b strings.Builder
	what, state := "is removed for good", "responds"
	if l.Replaced {
		what = "is replaced: it is removed for good when the new head has joined"
	}
	if !l.Responds {
		state = "does not respond"
	}
	fmt.Fprintf(&b, "head/%s, a %s that %s, %s\n", printable(l.Head), printable(l.Role), state, what)
	fmt.Fprintf(&b, "  Votes: %s\n", l.Before)
	if l.Refused == "" {
		fmt.Fprintf(&b, "         afterwards %s\n", l.After)
	}
	b.WriteString("  Lost:  no record: what was acknowledged is on a majority of the voters\n")
	for _, text := range l.Lost {
		fmt.Fprintf(&b, "         %s\n", printable(text))
	}
	if l.Next != "" {
		fmt.Fprintf(&b, "  Next:  %s\n", printable(l.Next))
	}
	if l.Refused != "" {
		fmt.Fprintf(&b, "  It is refused now: %s; %s\n", printable(l.Refused), l.Remedy)
	}
	return b.String()
}
