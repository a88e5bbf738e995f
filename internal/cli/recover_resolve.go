package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// frozenProvision is a provision that waits for a decision.
type frozenProvision struct {
	Project   string `json:"project"`
	Provision string `json:"provision"`
	Machine   string `json:"machine,omitempty"` // empty: it waits for one
	Workflow  string `json:"workflow,omitempty"`
	Step      string `json:"step,omitempty"` // of the run, in the records that were recovered
}

// afterRecovery is what a recovery leaves to decide.
type afterRecovery struct {
	Recovered  *trivet.Recovered `json:"recovered"`
	Frozen     []frozenProvision `json:"frozen"`
	Unverified []string          `json:"unverified"` // machines
	kept       []string          // those of them that are in quarantine
}

func (a *app) recoverList() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List what a recovery has left to decide",
		Long: "List the provisions that a recovery has frozen, with the step that their runs had reached when the\n" +
			"records were saved, and the machines that are unverified.",
		Example: "  trivet recover list\n  trivet recover list -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			left, err := recoveryLeft(cmd.Context(), cl)
			if err != nil {
				return err
			}
			return a.showLeft(left)
		},
	}
	a.outputForms(c, "table", "json", "yaml")
	return c
}

func recoveryLeft(ctx context.Context, cl *client.Client) (left afterRecovery, err error) {
	left = afterRecovery{Frozen: []frozenProvision{}, Unverified: []string{}}
	site, err := client.Of[trivet.Site](cl).Get(ctx, trivet.SiteName)
	if err != nil {
		return left, err
	}
	left.Recovered = site.Status.Recovered
	provisions, _, err := client.Of[trivet.Provision](cl).List(ctx, client.ListOptions{})
	if err != nil {
		return left, err
	}
	for _, p := range provisions {
		if p.Status.State != trivet.ProvisionFrozen {
			continue
		}
		f := frozenProvision{Project: p.Project, Provision: p.Name, Machine: p.Status.Machine}
		if f.Machine != "" {
			f.Workflow = p.Status.Workflow
			w, err := client.Of[trivet.Workflow](cl).In(p.Project).Get(ctx, f.Workflow)
			if err == nil && w.Status.Current() != nil {
				f.Step = w.Status.Current().Name
			}
		}
		left.Frozen = append(left.Frozen, f)
	}
	machines, _, err := client.Of[trivet.Machine](cl).List(ctx, client.ListOptions{})
	for _, m := range machines {
		if m.Status.State == trivet.MachineUnverified || m.Status.Former == trivet.MachineUnverified {
			left.Unverified = append(left.Unverified, m.Name)
		}
		if m.Status.Former == trivet.MachineUnverified {
			left.kept = append(left.kept, m.Name)
		}
	}
	return left, err
}

func (a *app) showLeft(left afterRecovery) error {
	if a.output != "table" {
		return a.showValue(left)
	}
	if left.Recovered == nil {
		fmt.Fprintln(a.Out, "this cluster was never recovered")
		return nil
	}
	r := left.Recovered
	fmt.Fprintf(a.Out, "recovered %s from a %s of %s\n", r.Time.Format("2006-01-02 15:04:05 MST"), r.From,
		r.DataTime.Format("2006-01-02 15:04:05 MST"))
	if r.Cause != "" {
		fmt.Fprintf(a.Out, "taken over by itself: %s\n", printable(r.Cause))
	}
	if len(left.Frozen) > 0 {
		rows := [][]string{{"PROVISION", "MACHINE", "RUN", "STEP"}}
		for _, f := range left.Frozen {
			name := trivet.ShortName(trivet.FullName(f.Project, f.Provision))
			rows = append(rows, []string{name, dash(f.Machine), dash(f.Workflow), dash(f.Step)})
		}
		if err := align(a.Out, rows); err != nil {
			return err
		}
		a.writeDecisions(left.Frozen)
	}
	a.writeUnverified(left)
	if len(left.Frozen)+len(left.Unverified) == len(left.kept) {
		fmt.Fprintln(a.Out, "nothing is left to decide")
	}
	return nil
}

// maxDecisions bounds the commands that are written of those to decide.
const maxDecisions = 20

// writeDecisions writes how to decide about provisions, each by a command that can be run as it is.
func (a *app) writeDecisions(frozen []frozenProvision) {
	fmt.Fprintln(a.Out, "decide about each, by --continue, --cancel or --installed:")
	for i, f := range frozen {
		if i == maxDecisions {
			fmt.Fprintf(a.Out, "  the same for %d more\n", len(frozen)-i)
			break
		}
		fmt.Fprintf(a.Out, "  trivet recover resolve %s --continue\n",
			trivet.ShortName(trivet.FullName(f.Project, f.Provision)))
	}
	fmt.Fprintln(a.Out, "--continue goes on after the last action that was recorded: the machine boots the installer, and "+
		"what was\ninstalled on it since is overwritten. --cancel leaves the machine as it is, unverified. --installed "+
		"leaves it as it\nis, too, and it serves the provision: it runs by now what that wanted.")
}

// writeUnverified writes which machines are unverified, and what to do.
func (a *app) writeUnverified(left afterRecovery) {
	var open []string
	for _, name := range left.Unverified {
		if !slices.Contains(left.kept, name) {
			open = append(open, name)
		}
	}
	if len(open) > 0 {
		fmt.Fprintf(a.Out, "unverified: %s: %s\n", counted(len(open), "machine"), listed(open))
		fmt.Fprintf(a.Out, "to use one again, where nothing runs that is needed: trivet accept %[1]s\n"+
			"to keep what runs on one: trivet quarantine %[1]s --reason 'installed before the recovery'\n", open[0])
	}
	if len(left.Unverified) > 0 {
		fmt.Fprintf(a.Out, "where one runs what a provision wanted: "+
			"trivet recover resolve PROVISION --installed --machine %s\n"+
			"a provision that is lost is applied again before, while the machine is in quarantine\n", left.Unverified[0])
	}
	if len(left.kept) > 0 {
		fmt.Fprintf(a.Out, "unverified, and kept in quarantine: %s: %s\n", counted(len(left.kept), "machine"),
			listed(left.kept))
	}
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return printable(text)
}

// listed joins names, of many the first ones.
func listed(names []string) string {
	const most = 20
	if len(names) == 0 {
		return "none"
	}
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(", and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

// counted returns a number of things.
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// machineCounts says how many machines are in each state.
func machineCounts(states map[string]int) string {
	total := 0
	var parts []string
	for _, state := range slices.Sorted(maps.Keys(states)) {
		total += states[state]
		parts = append(parts, fmt.Sprintf("%d %s", states[state], state))
	}
	if total == 0 {
		return "no machines"
	}
	return fmt.Sprintf("%s (%s)", counted(total, "machine"), strings.Join(parts, ", "))
}
