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
		Use: "head", Short: "List, add, replace and remove heads, and make machines heads",
		Example: "  trivet head token            # then run the printed command on the new head\n" +
			"  trivet head list\n  trivet head replace head1    # then run the printed command on its successor\n" +
			"  trivet head remove head1\n" +
			"  trivet head promote m7       # no spare host: a machine becomes a head\n  trivet head demote head3",
	}
	c.AddCommand(a.headList(), a.headToken(), a.headReplace(), a.headRemove(), a.headSet(),
		a.headPromote(), a.headDemote())
	return c
}

func (a *app) headList() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the heads, as seen by the head that answers",
		Long: "List the heads, as seen by the head that answers. The state of a head is leader (of the store,\n" +
			"which has no other meaning), member, joining, down, removing or removed. LAST HEARD is the time\n" +
			"since the last answer of the head.",
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
	c.Flags().BoolVar(&all, "all", false, "include removed heads")
	a.outputFlag(c)
	return c
}

// cluster returns the heads as seen by the one that answers.
func (a *app) cluster(ctx context.Context) (*client.Client, trivet.Cluster, error) {
	cl, err := a.connect()
	if err != nil {
		return nil, trivet.Cluster{}, err
	}
	view, err := cl.Cluster(ctx)
	return cl, view, err
}

func (a *app) showHeads(view trivet.Cluster, all bool) error {
	if !all {
		view.Heads = slices.DeleteFunc(view.Heads, isRemoved)
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
		fmt.Fprintf(a.Err, "trivet: warning: %s sees no leader: writes fail until a majority of the heads is up\n",
			view.Head)
	}
	rows := [][]string{{"NAME", "ROLE", "STATE", "LAST HEARD", "VERSION", "ADDRESS", "PROBLEM"}}
	for _, h := range view.Heads {
		rows = append(rows, []string{h.Name, h.Role, h.State, lastHeard(h), printable(h.Version), printable(h.Peer),
			printable(h.Problem)})
	}
	return align(a.Out, rows)
}

func isRemoved(h trivet.HeadView) bool { return h.State == string(trivet.HeadRemoved) }

// byNumber compares names in natural order: head4 before head10.
func byNumber(a, b string) int {
	x, y := a, b
	for x != "" && y != "" {
		m, n := number(x), number(y)
		if m == "" || n == "" {
			if x[0] != y[0] {
				return cmp.Compare(x[0], y[0])
			}
			x, y = x[1:], y[1:]
			continue
		}
		p, q := strings.TrimLeft(m, "0"), strings.TrimLeft(n, "0")
		if by := cmp.Or(cmp.Compare(len(p), len(q)), cmp.Compare(p, q)); by != 0 {
			return by
		}
		x, y = x[len(m):], y[len(n):]
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(a, b))
}

// number returns the digits that a text begins with.
func number(text string) string { return text[:len(text)-len(strings.TrimLeft(text, "0123456789"))] }

func lastHeard(h trivet.HeadView) string {
	switch {
	case h.LastHeard == nil:
		return "-"
	case h.LastHeard.D() < 5*time.Second:
		return "now"
	}
	return h.LastHeard.D().Round(time.Second).String() + " ago"
}

func (a *app) headToken() *cobra.Command {
	var witness, standby, sync bool
	var ttl time.Duration
	c := &cobra.Command{
		Use:   "token",
		Short: "Create a join token for a new head; it is shown only once",
		Long: "Create a join token for a new head, and print the command to run there. The token works once. Keep\n" +
			"it secret until it is used or has expired: it admits a head to the cluster.\n\n" +
			"A witness votes, but serves nothing and holds no keys. Two heads and a witness keep working when\n" +
			"any one of the three fails. Two heads without a witness cannot write when either is down.\n\n" +
			"A standby is a full head that does not vote: the other heads do not wait for it. Where there are only\n" +
			"two, and the other one is lost, it takes over by trivet recover --from-survivor, or by itself: see\n" +
			"trivet head set. What it had not received by then is lost. With --sync it votes, so that a write is\n" +
			"acknowledged only when both hold it, and nothing is lost; then no write succeeds while either is down.\n" +
			"Beside a witness, a majority is enough that need not include it.",
		Example: "  trivet head token\n  trivet head token --witness --ttl 10m\n  trivet head token --standby\n" +
			"  trivet head token -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			role := trivet.RoleVoter
			switch {
			case sync && !standby:
				return &trivet.FieldError{Field: "--sync", Problem: "is for a standby: add --standby"}
			case witness:
				role = trivet.RoleWitness
			case standby && !sync:
				role = trivet.RoleStandby
			}
			issue := func(ctx context.Context, cl *client.Client, view trivet.Cluster) (string, time.Time, error) {
				if role == trivet.RoleVoter && !sync {
					a.warnTwoHeads(view)
				}
				return cl.IssueJoin(ctx, role, ttl)
			}
			return a.showToken(cmd.Context(), issue)
		},
	}
	c.Flags().BoolVar(&witness, "witness", false, "for a witness, which votes but serves nothing")
	c.Flags().BoolVar(&standby, "standby", false, "for a standby, which follows the others and does not vote")
	c.Flags().BoolVar(&sync, "sync", false, "let the standby vote: it then has all that is acknowledged")
	c.MarkFlagsMutuallyExclusive("witness", "standby")
	a.tokenFlags(c, &ttl)
	return c
}

// warnTwoHeads warns if the new head is the second one: two heads are less available than one.
func (a *app) warnTwoHeads(view trivet.Cluster) {
	heads := slices.DeleteFunc(slices.Clone(view.Heads), isRemoved)
	if len(heads) == 1 {
		fmt.Fprintln(a.Err, "trivet: warning: two heads are less available than one: writes fail when either is down. "+
			"Add a third head or a\nwitness soon: trivet head token --witness. For a second head that need not be up: "+
			"trivet head token --standby")
	}
}

// tokenFlags adds the flags of commands that create a join token.
func (a *app) tokenFlags(c *cobra.Command, ttl *time.Duration) {
	c.Flags().DurationVar(ttl, "ttl", 0, "how long the token is valid (default 1h)")
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		if c.Flags().Changed("ttl") && *ttl <= 0 {
			return &trivet.FieldError{Field: "--ttl", Problem: fmt.Sprintf("is %s; it must be greater than 0", *ttl)}
		}
		return nil
	}
	a.outputForms(c, "table", "json", "yaml")
}

// issueFunc creates a join token.
type issueFunc func(context.Context, *client.Client, trivet.Cluster) (token string, expires time.Time, err error)

// showToken creates a token and prints how to use it.
func (a *app) showToken(ctx context.Context, issue issueFunc) error {
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
	fmt.Fprintf(a.Err, "Run on the new head before %s:\n  trivet server --join %s --token TOKEN\n",
		expires.Local().Format(time.DateTime), strings.Join(cl.Endpoints(), ","))
	return nil
}

// noSuchHead adds a hint to the error for an unknown head.
func noSuchHead(err error, op, name string) error {
	if !errors.Is(err, trivet.ErrNotFound) {
		return err
	}
	return &trivet.Error{Op: op, Kind: "Head", Name: name, Err: trivet.ErrNotFound,
		Hint: "list the heads with: trivet head list"}
}

func (a *app) headReplace() *cobra.Command {
	var ttl time.Duration
	var plan bool
	c := &cobra.Command{
		Use:   "replace OLD",
		Short: "Create a join token for a head that replaces another one",
		Long: "Create a join token for a head that replaces another one, which need not be running. When the new\n" +
			"head joins, it gets the role of the old one, which is permanently removed. Nothing changes before.\n" +
			"The only full head cannot be replaced: add another head first.",
		Example: "  trivet head replace head1 --plan   # what is lost, and what the next failure would break\n" +
			"  trivet head replace head1",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeNames("heads"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if plan {
				return a.planLeave(cmd.Context(), args[0], true)
			}
			issue := func(ctx context.Context, cl *client.Client, _ trivet.Cluster) (string, time.Time, error) {
				token, expires, err := cl.IssueReplace(ctx, args[0], ttl)
				return token, expires, noSuchHead(err, "replace", args[0])
			}
			return a.showToken(cmd.Context(), issue)
		},
	}
	a.tokenFlags(c, &ttl)
	c.Flags().BoolVar(&plan, "plan", false, "show what it means, and create no token")
	return c
}

func (a *app) headRemove() *cobra.Command {
	var plan, yes bool
	c := &cobra.Command{
		Use:   "remove NAME",
		Short: "Permanently remove a head from the cluster",
		Long: "Permanently remove a head from the cluster; it need not be running. Its name is not reused. Its\n" +
			"data directory is not deleted, but the head cannot rejoin with it, and its credential is revoked.\n" +
			"A full head had the keys of the cluster: wipe its data directory. If someone may have read it,\n" +
			"replace all keys then: trivet rotate all. The command shows the plan, asks, and waits until the head is\n" +
			"removed.",
		Example: "  trivet head remove head1 --plan   # what is lost, and what the next failure would break\n" +
			"  trivet head remove head1\n  trivet head remove head1 --yes",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeNames("heads"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if plan {
				return a.planLeave(cmd.Context(), args[0], false)
			}
			return a.removeHead(cmd.Context(), args[0], yes)
		},
	}
	a.outputForms(c, "table", "json", "yaml")
	c.Flags().BoolVar(&plan, "plan", false, "show what it means, and remove nothing")
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return c
}

func (a *app) removeHead(ctx context.Context, name string, yes bool) error {
	cl, view, err := a.cluster(ctx)
	if err != nil {
		return err
	}
	removed := func(h trivet.HeadView) bool { return h.Name == name && isRemoved(h) }
	if slices.ContainsFunc(view.Heads, removed) {
		fmt.Fprintf(a.Out, "head/%s is already removed\n", name)
		return nil
	}
	if !yes {
		if err := a.confirmRemove(ctx, cl, name); err != nil {
			return err
		}
	}
	if err := cl.RemoveHead(ctx, name); err != nil {
		return noSuchHead(err, "remove", name)
	}
	return a.waitRemoved(ctx, cl, name)
}

// printLeft prints what a removed head still has.
func (a *app) printLeft(h *trivet.Head) {
	if h.Spec.RoleOrDefault() == trivet.RoleWitness {
		return
	}
	fmt.Fprintf(a.Err, "its credential was revoked, and no other head accepts its certificate. It had the keys of the\n"+
		"cluster (CA, boot, sealing and store keys): wipe its data directory. If someone else may have read that,\n"+
		"replace all keys by 'trivet rotate all', then the passwords of BMCs and other secrets, and the tokens of\n"+
		"accounts.\n")
}

// waitRemoved waits until a head is removed, and prints what the removal waits for.
func (a *app) waitRemoved(ctx context.Context, cl *client.Client, name string) error {
	fmt.Fprintf(a.Err, "removing head %s\n", name)
	reason := ""
	for e, err := range client.Of[trivet.Head](cl).Watch(ctx, client.WatchOptions{Names: []string{name}}) {
		if ctx.Err() != nil {
			fmt.Fprintf(a.Err, "the removal of head %s continues; to check it: trivet head list --all\n", name)
			return ExitError(130)
		}
		if errors.Is(err, trivet.ErrUnauthenticated) { // the removal revokes the credential of the head
			fmt.Fprintf(a.Out, "head/%s removed\n", name)
			fmt.Fprintln(a.Err, "its credential, which this command used, was revoked with it: use the one of another head")
			return nil
		}
		if err != nil {
			return err
		}
		h, ok := e.Record.(*trivet.Head)
		if !ok || e.Type != client.Put {
			continue
		}
		if h.Status.State == trivet.HeadRemoved {
			fmt.Fprintf(a.Out, "head/%s removed\n", name)
			a.printLeft(h)
			return nil
		}
		if r := h.Status.Reason; r != "" && r != reason {
			reason = r
			fmt.Fprintf(a.Err, "  waiting: %s\n", printable(r))
		}
	}
	return ctx.Err()
}
