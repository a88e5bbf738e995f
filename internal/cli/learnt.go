package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/learnt"
)

func (a *app) models() *cobra.Command {
	var steps bool
	c := &cobra.Command{
		Use:   "models",
		Short: "Show what was learnt of the machines of each model",
		Long: "Show what was learnt of the machines of each model: how many runs ended, how many of them failed by the\n" +
			"fault of the machine, and with --steps how long each step takes. Older runs have less weight: half of it\n" +
			"after 30 days. Provisions avoid machines of a model that fails clearly more often than others.",
		Example: "  trivet models\n  trivet models --steps\n  trivet models -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			all, err := cl.Models(cmd.Context())
			if err != nil {
				return err
			}
			if a.output != "table" {
				return a.showValue(all)
			}
			if steps {
				return align(a.Out, modelStepRows(all))
			}
			return align(a.Out, modelRows(all))
		},
	}
	c.Flags().BoolVar(&steps, "steps", false, "show how long each step takes")
	a.outputForms(c, "table", "json", "yaml")
	return c
}

func modelName(m trivet.Model) string { return printable(orDefault(m.Name, "(all)")) }

func modelRows(all []trivet.Model) [][]string {
	rows := [][]string{{"MODEL", "RUNS", "MACHINE FAULTS", "OTHER FAILURES", "PLACEMENT"}}
	for _, m := range all {
		faults, failures := m.Failures[trivet.FaultMachine], 0.0
		for _, weight := range m.Failures {
			failures += weight
		}
		placement := ""
		if m.Avoided {
			placement = "avoided"
		}
		rows = append(rows, []string{modelName(m), weightText(m.Runs), weightText(faults), weightText(failures - faults),
			placement})
	}
	return rows
}

func modelStepRows(all []trivet.Model) [][]string {
	rows := [][]string{{"MODEL", "STEP", "KNOWN", "50 %", "95 %", "LATE AFTER"}}
	for _, m := range all {
		for _, s := range m.Steps {
			late := "-"
			if s.Late > 0 {
				late = durationText(s.Late.D())
			}
			rows = append(rows, []string{modelName(m), printable(s.Step), fmt.Sprint(s.Runs), durationText(s.P50.D()),
				durationText(s.P95.D()), late})
		}
	}
	return rows
}

// weightText returns a number of runs or failures, of which older ones have less weight.
func weightText(weight float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", weight), ".0") }

// usualText returns how long a step usually takes; empty where it is not known.
func usualText(t *trivet.StepTime) string {
	if t == nil {
		return ""
	}
	p50, p95 := durationText(t.P50.D()), durationText(t.P95.D())
	if p50 == p95 {
		return p50
	}
	return p50 + " to " + p95
}

// etaOf returns how long a run still takes by the local clock; nil where that is not known. w may be nil.
func etaOf(w *trivet.Workflow) *learnt.ETA {
	if w == nil || w.Status.Frozen {
		return nil
	}
	eta, ok := learnt.Remaining(w, time.Now())
	if !ok {
		return nil
	}
	return &eta
}

func etaCell(w *trivet.Workflow) string {
	if eta := etaOf(w); eta != nil {
		return durationText(eta.P50.D())
	}
	return ""
}

// etaText says when a run is expected to end; empty where that is not known.
func etaText(w *trivet.Workflow) string {
	eta := etaOf(w)
	if eta == nil {
		return ""
	}
	p50, p95 := durationText(eta.P50.D()), durationText(eta.P95.D())
	switch none := durationText(0); {
	case p95 == none: // it takes longer than almost all before
		return ""
	case p50 == none:
		return fmt.Sprintf("It ends in %s at most for 95 of 100 runs.", p95)
	}
	return fmt.Sprintf("It usually ends in %s from now, and in %s at most for 95 of 100 runs.", p50, p95)
}

// good is the text of a reputation without failures.
const good = "good"

// reputationText returns the failures of a machine, the faults of the machine first, with their weight now.
func reputationText(r *trivet.Reputation) string {
	failures := learnt.Failures(r, time.Now())
	if len(failures) == 0 {
		return good
	}
	types := slices.SortedFunc(maps.Keys(failures), func(x, y trivet.FailureType) int {
		if x == trivet.FaultMachine || y == trivet.FaultMachine {
			return map[bool]int{true: -1, false: 1}[x == trivet.FaultMachine]
		}
		return cmp.Compare(x, y)
	})
	var parts []string
	for _, f := range types {
		what := string(f)
		if f == trivet.FaultMachine {
			what = "own fault"
		}
		parts = append(parts, weightText(max(failures[f], 0.1))+" "+what)
	}
	return strings.Join(parts, ", ")
}

// byReputation compares machines by the faults that were their own, the fewest first.
func byReputation(now time.Time) compare {
	return func(x, y found) int {
		a, aOK := x.record.(*trivet.Machine)
		b, bOK := y.record.(*trivet.Machine)
		if !aOK || !bOK {
			return 0
		}
		return cmp.Compare(learnt.Faults(a.Status.Reputation, now), learnt.Faults(b.Status.Reputation, now))
	}
}
