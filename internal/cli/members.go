package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// machineOrMembers returns the machine of a provision or, where it has members, how many of them succeeded: "12/20".
func machineOrMembers(p *trivet.Provision) string {
	switch {
	case p.Spec.Count == nil && p.Status.Race != nil:
		return p.Status.Machine + ", " + p.Status.Race.Machine
	case p.Spec.Count == nil:
		return p.Status.Machine
	}
	return fmt.Sprintf("%d/%d", p.Status.Members.Succeeded, *p.Spec.Count)
}

// membersText returns text such as "12 of 20 succeeded, 5 running, 3 waiting".
func membersText(p *trivet.Provision) string {
	c := p.Status.Members
	parts := []string{fmt.Sprintf("%d of %d succeeded", c.Succeeded, *p.Spec.Count)}
	for _, part := range []struct {
		n    int
		what string
	}{{c.Running, "running"}, {max(c.Waiting, *p.Spec.Count-c.Total()+c.Waiting), "waiting"}, {c.Failed, "failed"}} {
		if part.n > 0 {
			parts = append(parts, strconv.Itoa(part.n)+" "+part.what)
		}
	}
	return strings.Join(parts, ", ")
}

// watchMembers prints how many members of a provision have succeeded, at most once in a tick, until it has ended.
func (a *app) watchMembers(ctx context.Context, cl *client.Client, name string) error {
	feed := newFeed(ctx, cl, "Provision", a.project(), name)
	defer feed.close()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	var last *trivet.Provision
	shown := ""
	show := func() {
		if text := membersText(last); text != shown {
			fmt.Fprintf(a.Out, "%s: %s\n", name, text)
			shown = text
		}
	}
	for {
		select {
		case e, ok := <-feed.events:
			switch {
			case !ok:
				return cmp.Or(feed.err, context.Cause(ctx))
			case e.Type == client.Delete:
				return fmt.Errorf("provision %s: %w: it was deleted", name, trivet.ErrNotFound)
			case e.Type != client.Put:
				continue
			}
			last = e.Record.(*trivet.Provision)
			if shown == "" {
				show()
			}
			if last.Status.State.Ended() {
				show()
				return a.endOfMembers(ctx, cl, last)
			}
		case <-ticker.C:
			if last != nil {
				show()
			}
		}
	}
}

// maxFailedShown is how many failed members are printed.
const maxFailedShown = 10

// endOfMembers prints how a provision with members has ended.
func (a *app) endOfMembers(ctx context.Context, cl *client.Client, p *trivet.Provision) error {
	st := &p.Status
	if st.State == trivet.ProvisionSucceeded {
		fmt.Fprintf(a.Out, "provision %s succeeded on %d machines in %s\n", p.Name, st.Members.Succeeded,
			durationText(st.Ended.Sub(st.Started)))
		return nil
	}
	fmt.Fprintf(a.Err, "provision %s failed: %s\n", p.Name, printable(st.Reason))
	failed, err := a.members(ctx, cl, p.Name, "status.state=failed")
	if err != nil {
		return err
	}
	for i, m := range failed {
		if i == maxFailedShown {
			fmt.Fprintf(a.Err, "  and %d more\n", len(failed)-i)
			break
		}
		fmt.Fprintf(a.Err, "  %s: %s\n", m.Name, printable(m.Status.Reason))
	}
	fmt.Fprintf(a.Err, "  hint: to try others instead: trivet delete%s provision NAME...\n", a.flagText())
	return ExitError(1)
}

// members returns the members of a provision that have some fields, those with the highest numbers last.
func (a *app) members(ctx context.Context, cl *client.Client, name, fields string) ([]*trivet.Provision, error) {
	selector := "status.memberOf=" + name
	if fields != "" {
		selector += "," + fields
	}
	all, _, err := client.Of[trivet.Provision](cl).In(a.project()).List(ctx, client.ListOptions{Fields: selector})
	slices.SortFunc(all, func(x, y *trivet.Provision) int { return cmp.Compare(x.MemberNumber(), y.MemberNumber()) })
	return all, err
}
