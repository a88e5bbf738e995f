package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

func (a *app) head() *cobra.Command {
	c := &cobra.Command{
		Use: "head", Short: "Let heads join the cluster, list them, and take them out",
		Example: "  trivet head token            # on any head; then run what it prints on the new one\n" +
			"  trivet head list\n  trivet head replace head1    # its successor joins, and it is out\n  trivet head remove head1",
	}
	c.AddCommand(a.headList(), a.headToken(), a.headReplace(), a.headRemove())
	return c
}

func (a *app) headList() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the heads as the one that answers sees them now",
		Long: "List the heads as the one that answers sees them now. A head is the leader (of the store's members, for the moment:\n" +
			"it has no other meaning), a member, joining, down, removing or removed. SEEN is how long ago it was last heard.",
		Example: "  trivet head list\n  trivet head list --all -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, view, err := a.cluster(cmd.Context())
			if err != nil {
				return err
			}
			return a.showHeads(view, all)
		},
	}
	c.Flags().BoolVar(&all, "all", false, "show those that were removed, too")
	a.outputFlag(c)
	return c
}

// cluster gives what the head that answers sees of the others. One of version 0.1 knows of none.
func (a *app) cluster(ctx context.Context) (*client.Client, trivet.Cluster, error) {
	cl, err := a.connect()
	if err != nil {
		return nil, trivet.Cluster{}, err
	}
	view, err := cl.Cluster(ctx)
	if !errors.Is(err, trivet.ErrNotFound) {
		return cl, view, err
	}
	if v, versionErr := cl.Version(ctx); versionErr == nil {
		err = &trivet.Error{Op: "ask", Kind: "Head", Name: v.Head, Err: fmt.Errorf("%w: it is of version %s, which is always alone", trivet.ErrInvalid, v.Version),
			Hint: "upgrade it first: stop it, and start this version on its data folder"}
	}
	return nil, view, err
}

func (a *app) showHeads(view trivet.Cluster, all bool) error {
	if !all {
		var there []trivet.HeadView
		for _, h := range view.Heads {
			if h.State != string(trivet.HeadRemoved) {
				there = append(there, h)
			}
		}
		view.Heads = there
	}
	slices.SortFunc(view.Heads, func(x, y trivet.HeadView) int { return byNumber(x.Name, y.Name) })
	switch a.output {
	case "json", "yaml":
		return a.showValue(view)
	case "name":
		for _, h := range view.Heads {
			fmt.Fprintln(a.Out, "head/"+h.Name)
		}
		return nil
	}
	if !view.Quorum {
		fmt.Fprintf(a.Err, "%s sees no leader: nothing can be written until most heads are back\n", view.Head)
	}
	rows := [][]string{{"NAME", "ROLE", "STATE", "SEEN", "VERSION", "ADDRESS", "PROBLEM"}}
	for _, h := range view.Heads {
		rows = append(rows, []string{h.Name, h.Role, h.State, seen(h), printable(h.Version), printable(h.Peer), printable(h.Problem)})
	}
	return align(a.Out, rows)
}

// byNumber orders names as people count: head4 before head10.
func byNumber(a, b string) int {
	const digits = "0123456789"
	return cmp.Or(cmp.Compare(strings.TrimRight(a, digits), strings.TrimRight(b, digits)), cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

func seen(h trivet.HeadView) string {
	switch {
	case h.LastHeard == nil:
		return "-"
	case h.LastHeard.D() < 5*time.Second:
		return "now"
	}
	return h.LastHeard.D().Round(time.Second).String() + " ago"
}

func (a *app) headToken() *cobra.Command {
	var witness bool
	var life time.Duration
	c := &cobra.Command{
		Use:   "token",
		Short: "Issue a token that lets one head join, once; it is shown this once",
		Long: "Issue a token that lets one head join, once, and show the command to run there. The token is a secret until it is\n" +
			"used or has expired: whoever has it can become a head.\n\n" +
			"A witness votes and serves nothing, and holds no keys: with it two heads go on when any one of the three dies. Two\n" +
			"without one cannot write when either is down.",
		Example: "  trivet head token\n  trivet head token --witness --life 10m\n  trivet head token -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			role := trivet.RoleVoter
			if witness {
				role = trivet.RoleWitness
			}
			return a.showToken(cmd.Context(), func(ctx context.Context, cl *client.Client, view trivet.Cluster) (string, time.Time, error) {
				a.warnOfTwo(view)
				return cl.IssueJoin(ctx, role, life)
			})
		},
	}
	c.Flags().BoolVar(&witness, "witness", false, "for a witness, which votes and serves nothing")
	a.tokenFlags(c, &life)
	return c
}

// warnOfTwo tells who has one head that a second one alone makes it worse.
func (a *app) warnOfTwo(view trivet.Cluster) {
	there := 0
	for _, h := range view.Heads {
		if h.State != string(trivet.HeadRemoved) {
			there++
		}
	}
	if there == 1 {
		fmt.Fprintln(a.Err, "Two heads are less available than one: when either is down, nothing can be written. Let a third one join soon,\n"+
			"which may be a witness: trivet head token --witness")
	}
}

// tokenFlags are those of commands that issue a join token.
func (a *app) tokenFlags(c *cobra.Command, life *time.Duration) {
	c.Flags().DurationVar(life, "life", 0, "how long it is good for (default 1h)")
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		if c.Flags().Changed("life") && *life <= 0 {
			return &trivet.FieldError{Field: "--life", Problem: fmt.Sprintf("is %s; it must be more than 0", *life)}
		}
		return nil
	}
	a.outputForms(c, "table", "json", "yaml")
}

// showToken issues a token and says what to do with it.
func (a *app) showToken(ctx context.Context, issue func(context.Context, *client.Client, trivet.Cluster) (string, time.Time, error)) error {
	cl, view, err := a.cluster(ctx)
	if err != nil {
		return err
	}
	token, expires, err := issue(ctx, cl, view)
	if err != nil {
		return err
	}
	if a.output != "table" {
		return a.showValue(map[string]any{"token": token, "expires": expires, "join": cl.Endpoints()})
	}
	fmt.Fprintln(a.Out, token)
	fmt.Fprintf(a.Err, "On the new head, until %s:\n  trivet server --join %s --token TOKEN\n",
		expires.Local().Format(time.DateTime), strings.Join(cl.Endpoints(), ","))
	return nil
}

// noSuchHead says what to do where a person has named a head that is not there.
func noSuchHead(err error, op, name string) error {
	if !errors.Is(err, trivet.ErrNotFound) {
		return err
	}
	return &trivet.Error{Op: op, Kind: "Head", Name: name, Err: trivet.ErrNotFound, Hint: "see which there are: trivet head list"}
}

func (a *app) headReplace() *cobra.Command {
	var life time.Duration
	c := &cobra.Command{
		Use:   "replace OLD",
		Short: "Issue a token for a head that takes the place of another one",
		Long: "Issue a token for a head that takes the place of another one, which need not run: when the new head joins, the old\n" +
			"one is removed for good, and the new one has its role. Nothing happens before. The last full head is not replaced:\n" +
			"let another one join first.",
		Example: "  trivet head replace head1",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeNames("heads"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.showToken(cmd.Context(), func(ctx context.Context, cl *client.Client, _ trivet.Cluster) (string, time.Time, error) {
				token, expires, err := cl.IssueReplace(ctx, args[0], life)
				return token, expires, noSuchHead(err, "replace", args[0])
			})
		},
	}
	a.tokenFlags(c, &life)
	return c
}

func (a *app) headRemove() *cobra.Command {
	return &cobra.Command{
		Use:   "remove NAME",
		Short: "Take a head out of the cluster for good",
		Long: "Take a head out of the cluster for good; it need not run. Its name is not given again. Its data stays where it is,\n" +
			"but it does not get back in with that. The command waits until it is out.",
		Example: "  trivet head remove head1",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeNames("heads"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, view, err := a.cluster(cmd.Context())
			if err != nil {
				return err
			}
			removed := func(h trivet.HeadView) bool { return h.Name == args[0] && h.State == string(trivet.HeadRemoved) }
			if slices.ContainsFunc(view.Heads, removed) {
				fmt.Fprintf(a.Out, "head/%s is removed already\n", args[0])
				return nil
			}
			if err := cl.RemoveHead(cmd.Context(), args[0]); err != nil {
				return noSuchHead(err, "remove", args[0])
			}
			return a.awaitRemoval(cmd.Context(), cl, args[0])
		},
	}
}

// awaitRemoval tells what a removal waits for, until it is done.
func (a *app) awaitRemoval(ctx context.Context, cl *client.Client, name string) error {
	fmt.Fprintf(a.Err, "removing %s\n", name)
	said := ""
	for e, err := range client.Of[trivet.Head](cl).Watch(ctx, client.WatchOptions{Names: []string{name}}) {
		if ctx.Err() != nil {
			fmt.Fprintf(a.Err, "the removal of %s goes on without you; look again with: trivet head list --all\n", name)
			return ExitError(130)
		}
		if err != nil {
			return err
		}
		h, ok := e.Record.(*trivet.Head)
		if !ok || e.Type != client.Put {
			continue
		}
		if h.Status.State == trivet.HeadRemoved {
			fmt.Fprintf(a.Out, "head/%s is removed\n", name)
			return nil
		}
		if r := h.Status.Reason; r != "" && r != said {
			said = r
			fmt.Fprintf(a.Err, "  not yet: %s\n", printable(r))
		}
	}
	return ctx.Err()
}
