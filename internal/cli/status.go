package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/invariant"
	"github.com/trivet-project/trivet/internal/wait"
)

// exitUnknown is the exit status where the state is not known. Those of the invariants are their levels: as with
// plugins of Nagios, 0 all hold, 1 a warning, 2 something is broken.
const exitUnknown = 3

// statusInterval is the time between two displays of --watch.
const statusInterval = 2 * time.Second

func (a *app) statusCommand() *cobra.Command {
	var only string
	var watch bool
	c := &cobra.Command{
		Use: "status", Short: "Check that all is well, or name what is missing and what to do",
		Long: "Check that all is well, or name what is missing and what to do. A head asks all others for what they\n" +
			"know of themselves, probes the boot services by a synthetic boot in each network, and checks named\n" +
			"invariants: " + wrapNames(invariant.Names()) + ".\n" +
			"One that does not hold is shown with the evidence and what to do next.\n\n" +
			"The exit status is 0 where all invariants hold, 1 where there are warnings only (all works, and the next\n" +
			"failure would break something), 2 where one is broken, and 3 where no head answers.\n\n" +
			"It needs an account of role viewer. It works with heads that are down, and without a quorum.",
		Example: "  trivet status\n  trivet status -o wide\n  trivet status --invariant spare\n  trivet status --watch\n" +
			"  trivet status -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if only != "" && !slices.Contains(invariant.Names(), only) {
				return &trivet.FieldError{Field: "--invariant", Problem: fmt.Sprintf("is %q; the invariants are %s", only,
					strings.Join(invariant.Names(), ", "))}
			}
			if watch {
				return a.watchStatus(cmd.Context(), only)
			}
			code, err := a.printStatus(cmd.Context(), only)
			if err != nil {
				PrintError(a.Err, err)
			}
			if code != 0 {
				return ExitError(code)
			}
			return nil
		},
	}
	c.Flags().StringVar(&only, "invariant", "", "show and judge this invariant only")
	c.RegisterFlagCompletionFunc("invariant",
		cobra.FixedCompletions(invariant.Names(), cobra.ShellCompDirectiveNoFileComp))
	c.Flags().BoolVarP(&watch, "watch", "w", false, "show the state again and again, until interrupted")
	a.outputForms(c, "table", "wide", "json", "yaml")
	return c
}

// wrapNames joins names, for a help text.
func wrapNames(all []string) string {
	var b strings.Builder
	line := len("invariants: ")
	for i, name := range all {
		text := name
		if i+1 < len(all) {
			text += ", "
		}
		if line+len(text) > 100 {
			b.WriteString("\n")
			line = 0
		}
		b.WriteString(text)
		line += len(text)
	}
	return strings.ReplaceAll(b.String(), ", \n", ",\n")
}

// printStatus prints the state once, and returns the exit status.
func (a *app) printStatus(ctx context.Context, only string) (code int, err error) {
	report, err := a.readStatus(ctx)
	if err != nil {
		return exitUnknown, err
	}
	return a.showStatus(report, only)
}

// readStatus returns the state of the site. Where no head answers, the error says how to recover.
func (a *app) readStatus(ctx context.Context) (r trivet.StatusReport, err error) {
	cl, err := a.connect()
	if err != nil {
		return r, err
	}
	defer cl.Close()
	if r, err = cl.Status(ctx); errors.Is(err, trivet.ErrUnavailable) && hintOf(err) == "" {
		err = &trivet.Error{Op: "read the status", Err: err, Hint: "start a head; where all heads, or most of them, are " +
			"lost for good: docs/recovery.md"}
	}
	return r, err
}

// watchStatus shows the state until ctx ends. The exit status is that of the last one.
func (a *app) watchStatus(ctx context.Context, only string) error {
	code := exitUnknown
	for {
		if _, ok := a.terminal(); ok && (a.output == "table" || a.output == "wide") {
			fmt.Fprint(a.screen, "\x1b[H\x1b[2J")
		}
		now, err := a.printStatus(ctx, only)
		if ctx.Err() == nil {
			code = now
			if err != nil {
				PrintError(a.Err, err)
			}
		}
		if wait.Sleep(ctx, statusInterval) != nil {
			break
		}
	}
	if code == 0 {
		return nil
	}
	return ExitError(code)
}

// showStatus prints a state, and returns the exit status.
func (a *app) showStatus(r trivet.StatusReport, only string) (code int, err error) {
	if only != "" {
		r.Invariants = slices.DeleteFunc(r.Invariants, func(i trivet.Invariant) bool { return i.Name != only })
		if len(r.Invariants) == 0 {
			return exitUnknown, fmt.Errorf("%w: the head that answered does not know the invariant %s", trivet.ErrNotFound,
				only)
		}
		r.State = invariant.Worst(r.Invariants)
	}
	code = invariant.Level(r.State)
	switch a.output {
	case "json", "yaml":
		return code, a.showValue(r)
	case "wide":
		return code, a.showWideStatus(r)
	}
	fmt.Fprintln(a.Out, headlineOf(r.Invariants))
	for _, level := range []trivet.InvariantState{trivet.InvariantBroken, trivet.InvariantWarning,
		trivet.InvariantHolds} {
		for _, i := range r.Invariants {
			if i.State == level && (level != trivet.InvariantHolds || only != "") {
				a.showInvariant(i)
			}
		}
	}
	return code, nil
}

// headlineOf returns how many invariants hold.
func headlineOf(all []trivet.Invariant) string {
	n := map[trivet.InvariantState]int{}
	for _, i := range all {
		n[i.State]++
	}
	if n[trivet.InvariantHolds] == len(all) {
		if len(all) == 1 {
			return "the invariant holds"
		}
		return fmt.Sprintf("all %d invariants hold", len(all))
	}
	return fmt.Sprintf("%d broken, %d with a warning; %d of %d invariants hold", n[trivet.InvariantBroken],
		n[trivet.InvariantWarning], n[trivet.InvariantHolds], len(all))
}

// showInvariant prints an invariant with its evidence and remedy.
func (a *app) showInvariant(i trivet.Invariant) {
	fmt.Fprintf(a.Out, "\n%-8s %s: %s\n", i.State, i.Name, printable(i.Summary))
	for _, text := range i.Evidence {
		fmt.Fprintf(a.Out, "         - %s\n", printable(text))
	}
	if i.Remedy != "" {
		fmt.Fprintf(a.Out, "         next: %s\n", printable(i.Remedy))
	}
}

// showWideStatus prints tables of all invariants and heads.
func (a *app) showWideStatus(r trivet.StatusReport) error {
	rows := [][]string{{"STATE", "INVARIANT", "SUMMARY"}}
	for _, i := range r.Invariants {
		rows = append(rows, []string{string(i.State), i.Name, printable(i.Summary)})
	}
	if err := align(a.Out, rows); err != nil {
		return err
	}
	fmt.Fprintln(a.Out)
	rows = [][]string{{"HEAD", "ROLE", "STATE", "VERSION", "CLOCK", "DISK FREE", "MEMORY", "STORE", "PROBLEM"}}
	heads := slices.Clone(r.Facts.Heads)
	slices.SortFunc(heads, func(x, y trivet.HeadFacts) int { return byNumber(x.Name, y.Name) })
	for _, h := range heads {
		rows = append(rows, headRow(h))
	}
	return align(a.Out, rows)
}

func headRow(h trivet.HeadFacts) []string {
	state := h.State
	if h.Down {
		state = "down"
	}
	clock, disk, memory, store := "-", "-", "-", "-"
	if !h.Down {
		clock = h.ClockAhead.D().Round(100 * time.Millisecond).String()
	}
	if o := h.Own; o != nil {
		disk, memory = bytesText(o.DiskFree), bytesText(o.MemoryUsed)
		if o.StoreQuota > 0 {
			store = fmt.Sprintf("%d %%", o.StoreUsed*100/o.StoreQuota)
		}
	}
	return []string{h.Name, h.Role, state, printable(h.Version), clock, disk, memory, store, printable(h.Problem)}
}
