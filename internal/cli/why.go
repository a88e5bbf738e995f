package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/learnt"
)

func (a *app) why() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:   "why MACHINE|PROVISION|MAC",
		Short: "Explain the state of a machine or provision",
		Long: "Explain the state of a machine: its last failure with the cause, disks that report that they fail, the\n" +
			"steps of its workflow, and all events in order: DHCP, boot files, agent, actions, failures and remedies.\n" +
			"Of a provision: what it waits for, its place among those that wait for the same, who paused it, and its\n" +
			"machine. Of a MAC: the machine that has it, or the segment without a Network that it asks from.",
		Example: "  trivet why m1\n  trivet why m1 --all\n  trivet why m1 -o json\n  trivet why web1\n" +
			"  trivet why 52:54:00:12:34:56",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeNames("machines"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			e, err := explainMachine(cmd.Context(), cl, args[0], all)
			if errors.Is(err, trivet.ErrNotFound) {
				e, err = a.explainProvision(cmd.Context(), cl, args[0], all, err)
			}
			if mac, bad := trivet.CanonicalMAC(args[0]); bad == nil && errors.Is(err, trivet.ErrNotFound) {
				e, err = explainMAC(cmd.Context(), cl, mac, all, err)
			}
			if err != nil {
				return err
			}
			return a.showWhy(e)
		},
	}
	c.Flags().BoolVar(&all, "all", false, "include the events of earlier workflows")
	a.outputForms(c, "table", "json", "yaml")
	return c
}

// explanation is what explains the state of a machine.
type explanation struct {
	Provision *trivet.Provision  `json:"provision,omitempty"` // if it was asked for
	Queue     *trivet.QueuePlace `json:"queue,omitempty"`     // its place the provision, while it waits
	Machine   *trivet.Machine    `json:"machine,omitempty"`
	Workflow  *trivet.Workflow   `json:"workflow,omitempty"`
	ETA       *learnt.ETA        `json:"eta,omitempty"`    // of the workflow
	Notes     []string           `json:"notes,omitempty"`  // what other records, and its disks, say of the machine
	Events    []*trivet.Event    `json:"events,omitempty"` // in order
}

// explainProvision explains a provision, with its machine if it has one. none is the error where there is neither a
// machine nor a provision of the name.
func (a *app) explainProvision(ctx context.Context, cl *client.Client, name string, all bool,
	none error) (e explanation, err error) {
	p, err := client.Of[trivet.Provision](cl).In(a.project()).Get(ctx, name)
	if errors.Is(err, trivet.ErrNotFound) {
		return e, none
	}
	if err != nil {
		return e, err
	}
	if p.Status.Machine != "" {
		e, err = explainMachine(ctx, cl, p.Status.Machine, all)
		if errors.Is(err, trivet.ErrNotFound) || err == nil && e.Machine.UID != p.Status.MachineUID {
			e, err = explanation{}, nil // it was deleted
		}
	}
	if err == nil {
		e.Queue, err = cl.QueuePlace(ctx, p.Project, p.Name)
	}
	if err == nil && e.Machine == nil {
		e.Notes, err = holderNote(ctx, cl, p)
	}
	e.Provision = p
	return e, err
}

// printProvision prints the state of a provision.
func (a *app) printProvision(e explanation) {
	p := e.Provision
	fmt.Fprintf(a.Out, "Provision %s %s%s\n", p.Name,
		stateText(string(cmp.Or(p.Status.State, trivet.ProvisionPending))), suffix(p.Status.Reason))
	if text := pauseText(p.Status.Paused); text != "" {
		fmt.Fprintf(a.Out, "It is %s; to go on: trivet resume%s %s\n", printable(text), a.flagText(), p.Name)
	}
	if e.Queue != nil {
		fmt.Fprintf(a.Out, "It is the %s.\n", printable(queueText(e.Queue)))
	}
	if race := p.Status.Race; race != nil {
		fmt.Fprintf(a.Out, "Machine %s installs it at the same time, by workflow %s; see: trivet why %s\n", race.Machine,
			race.Workflow, race.Machine)
	}
	if text := hedgeText(e); text != "" {
		fmt.Fprintf(a.Out, "It hedges: %s\n", printable(text))
	}
	if note := p.Status.RaceNote; note != "" {
		fmt.Fprintf(a.Out, "Its race: %s\n", printable(note))
	}
	if p.Status.State == trivet.ProvisionFailed {
		fmt.Fprintf(a.Out, "When the cause is gone: trivet retry%s %s\n", a.flagText(), p.Name)
	}
}

// hedgeText says what becomes of the hedge of a provision whose run goes on.
func hedgeText(e explanation) string {
	p, w := e.Provision, e.Workflow
	if !p.Spec.Hedge || p.Status.State != trivet.ProvisionRunning || p.Status.Race != nil || w == nil {
		return ""
	}
	if p.Status.Hedge != "" {
		return p.Status.Hedge
	}
	if s := w.Status.Current(); s != nil {
		if t := w.Spec.StepTime(s.Name); t == nil || t.Runs < trivet.MinHedgeRuns {
			return fmt.Sprintf("not at %s, of which fewer than %d earlier runs are known", s.Name, trivet.MinHedgeRuns)
		}
	}
	return "a second machine begins when a step takes longer than 95 % of the earlier ones"
}

func explainMachine(ctx context.Context, cl *client.Client, machine string, all bool) (e explanation, err error) {
	m, err := client.Of[trivet.Machine](cl).Get(ctx, machine)
	if err != nil {
		return e, err
	}
	e.Machine = m
	if m.Status.Workflow != "" {
		e.Workflow, err = workflowBy(ctx, cl, trivet.Resolve("", m.Status.Workflow))
		if errors.Is(err, trivet.ErrNotFound) {
			e.Workflow, err = nil, nil
		}
		if err != nil {
			return e, err
		}
		e.ETA = etaOf(e.Workflow)
	}
	if e.Notes, err = notesOf(ctx, cl, m, e.Workflow); err != nil {
		return e, err
	}
	e.Notes = append(e.Notes, diskNotes(m)...)
	e.Events, err = eventsOfMachine(ctx, cl, m)
	if w := e.Workflow; !all && w != nil {
		e.Events = slices.DeleteFunc(e.Events, func(e *trivet.Event) bool { return e.Spec.Workflow != w.ShortName() })
	}
	return e, err
}

func (a *app) showWhy(e explanation) error {
	if a.output != "table" {
		return a.showValue(e)
	}
	if e.Provision != nil {
		a.printProvision(e)
	}
	m := e.Machine
	if m == nil {
		a.printNotes(e.Notes)
		return nil
	}
	fmt.Fprintf(a.Out, "Machine %s is %s", m.Name, cmp.Or(string(m.Status.State), "new"))
	if m.Status.Reason != "" {
		fmt.Fprintf(a.Out, ": %s", printable(m.Status.Reason))
	}
	fmt.Fprintln(a.Out)
	a.printNotes(e.Notes)
	if text := powerErrorText(m); text != "" {
		fmt.Fprintf(a.Out, "Its power is %s, %s; to read it again: trivet power status %s\n", powerCell(m),
			printable(text), m.Name)
	}
	if names := m.Status.FormerNames; len(names) > 0 {
		fmt.Fprintf(a.Out, "It was renamed: before, it was %s.\n", strings.Join(names, ", and before that "))
	}
	if m.Status.HoldsData != "" {
		fmt.Fprintf(a.Out, "Its disks hold the data of %s: no selector chooses it until trivet accept or release.\n",
			printable(m.Status.HoldsData))
	}
	if m.Spec.Cordoned {
		fmt.Fprintln(a.Out, "It is cordoned: no provisions are placed on it.")
	}
	if text := reputationText(m.Status.Reputation); text != good {
		fmt.Fprintf(a.Out, "Its reputation: %s. Provisions prefer machines with fewer faults; to reset it: "+
			"trivet accept %s --forget\n", text, m.Name)
	}
	if e.Workflow == nil {
		fmt.Fprintln(a.Out, "It has no workflow.")
	} else if err := a.printWorkflow(e.Workflow); err != nil {
		return err
	}
	return a.printEvents(e.Events)
}

func (a *app) printNotes(notes []string) {
	for _, note := range notes {
		fmt.Fprintln(a.Out, printable(note))
	}
}

// printWorkflow prints the failure and the steps of a workflow.
func (a *app) printWorkflow(w *trivet.Workflow) error {
	of, state := "of template "+w.Spec.Template, string(w.Status.State)
	if w.Spec.Release != "" {
		of = "releases the machine, " + string(w.Spec.Release)
	}
	if w.Status.Frozen {
		state += ", and frozen: the cluster was recovered from older records, and nothing is done for it until an operator " +
			"decides: trivet recover list"
	}
	fmt.Fprintf(a.Out, "Workflow %s %s: %s", w.ShortName(), of, state)
	if w.Status.Resets > 0 {
		fmt.Fprintf(a.Out, "; its agent was lost %s", times(w.Status.Resets))
	}
	if text := runPauseText(w); text != "" {
		fmt.Fprintf(a.Out, "; %s", printable(text))
	}
	fmt.Fprintln(a.Out)
	if text := etaText(w); text != "" {
		fmt.Fprintln(a.Out, text)
	}
	if f := w.Status.Failure; f != nil {
		fmt.Fprintf(a.Out, "\nFailed step: %s (failure type: %s)\n  %s\n", cmp.Or(f.Step, "none"), f.Type,
			printable(f.Cause))
		if f.Console != "" {
			fmt.Fprintf(a.Out, "\nLast lines of its serial console:\n  %s\n",
				strings.ReplaceAll(f.Console, "\n", "\n  "))
		}
		if f.EventLog != "" {
			fmt.Fprintf(a.Out, "\nLast entries of its BMC's event log:\n  %s\n",
				strings.ReplaceAll(f.EventLog, "\n", "\n  "))
		}
	}
	fmt.Fprintln(a.Out)
	return align(a.Out, stepRows(w))
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return strconv.Itoa(n) + " times"
}

// eventsOfMachine returns the events of a machine, in order, also those that have a former name of it.
func eventsOfMachine(ctx context.Context, cl *client.Client, m *trivet.Machine) (all []*trivet.Event, err error) {
	for _, name := range append(slices.Clone(m.Status.FormerNames), m.Name) {
		events, err := eventsOf(ctx, cl, "machine/"+name, m.UID)
		if err != nil {
			return nil, err
		}
		all = append(all, events...)
	}
	slices.SortFunc(all, func(x, y *trivet.Event) int { return cmp.Compare(x.Spec.Seq, y.Spec.Seq) })
	return all, nil
}

// eventsOf returns the events of a subject, in order. An earlier one of its name has its own.
func eventsOf(ctx context.Context, cl *client.Client, subject, uid string) ([]*trivet.Event, error) {
	events, _, err := client.Of[trivet.Event](cl).List(ctx,
		client.ListOptions{Fields: "spec.subject=" + subject + ",spec.subjectUID=" + uid})
	slices.SortFunc(events, func(x, y *trivet.Event) int { return cmp.Compare(x.Spec.Seq, y.Spec.Seq) })
	return events, err
}

func (a *app) printEvents(events []*trivet.Event) error {
	if len(events) == 0 {
		return nil
	}
	fmt.Fprintln(a.Out)
	rows := [][]string{{"TIME", "EPOCH", "STEP", "REASON", "MESSAGE"}}
	for _, e := range events {
		reason := e.Spec.Reason
		if e.Spec.Warning {
			reason = "! " + reason
		}
		rows = append(rows, []string{e.Spec.Time.UTC().Format("2006-01-02 15:04:05.000"),
			strconv.FormatInt(e.Spec.Epoch, 10),
			cmp.Or(e.Spec.Step, "-"), reason, printable(e.Spec.Message)})
	}
	return align(a.Out, rows)
}
