package cluster

import (
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/agent/installer/journal"
)

// lateSlack is how much later than its time a deadline may fire, besides the time of faults: heads check deadlines,
// and the test reads states, at intervals.
const lateSlack = 20 * time.Second

// checkWaits checks that everything ended as it had to.
func (h *History) checkWaits(r *report) {
	for _, w := range h.Waits {
		took := w.Return - w.Call
		switch {
		case w.Deadline == 0 && w.Return == 0:
			r.add(ErrRunStuck, "%s, requested at %s, is %s on %s (%s)", w.Name, w.Call, w.State, w.Machine, w.Reason)
		case w.Deadline == 0 && w.State != string(trivet.ProvisionSucceeded):
			r.add(ErrRunFailed, "%s of %s to %s: %s: %s", w.Name, w.Call, w.Return, w.State, w.Reason)
		case w.Deadline == 0:
		case w.Return == 0:
			r.add(ErrDeadlineLate, "%s of %s has not fired", w.Name, w.Deadline)
		case took < w.Deadline:
			r.add(ErrDeadlineEarly, "%s of %s fired after %s: %s", w.Name, w.Deadline, took, w.Reason)
		case took > w.Deadline+lateSlack+h.troubled(w.Call, w.Return):
			r.add(ErrDeadlineLate, "%s of %s fired after %s", w.Name, w.Deadline, took)
		}
	}
}

// troubled is how much of a time had faults.
func (h *History) troubled(from, to time.Duration) (sum time.Duration) {
	for _, f := range h.Faults {
		if begin, end := max(f.From, from), min(f.To+5*time.Second, to); end > begin {
			sum += end - begin
		}
	}
	return sum
}

// checkRecords checks all states of the records that there have been, one transaction after the other.
func (h *History) checkRecords(r *report) {
	type byName = map[string]change
	now := records{report: r, workflows: byName{}, provisions: byName{}, machines: byName{}}
	for i := 0; i < len(h.Whole); {
		end := i
		for end < len(h.Whole) && h.Whole[end].Revision == h.Whole[i].Revision {
			end++
		}
		now.apply(h.Whole[i:end])
		i = end
	}
	for name, w := range now.workflows {
		if !trivet.WorkflowState(w.State).Ended() {
			r.add(ErrRunStuck, "workflow %s was left %s at %s", name, w.State, w.Step)
		}
	}
}

// records are the records as of one revision.
type records struct {
	report                          *report
	workflows, provisions, machines map[string]change
}

// apply applies the changes of one transaction.
func (s *records) apply(changes []change) {
	epochs := map[string]int64{} // before
	for _, c := range changes {
		if c.Kind == "Machine" {
			epochs[c.Name] = s.machines[c.Name].Epoch
			if c.Type == "put" && c.Epoch < epochs[c.Name] {
				s.report.add(ErrOldEpoch, "%s fell from epoch %d to %d at revision %d",
					c.Name, epochs[c.Name], c.Epoch, c.Revision)
			}
		}
	}
	for _, c := range changes {
		if c.Kind == "Workflow" && c.Type == "put" {
			epoch, changed := epochs[c.Machine]
			if !changed {
				epoch = s.machines[c.Machine].Epoch
			}
			s.checkSteps(s.workflows[c.Name], c, epoch)
		}
	}
	for _, c := range changes {
		kinds := map[string]map[string]change{
			"Workflow": s.workflows, "Provision": s.provisions, "Machine": s.machines,
		}
		into := kinds[c.Kind]
		if into == nil {
			continue
		}
		if into[c.Name] = c; c.Type != "put" {
			delete(into, c.Name)
		}
	}
	s.checkOwners(changes[0].Revision)
}

// checkSteps checks what a transaction did to a workflow, under the epoch that its machine had before.
func (s *records) checkSteps(was, is change, epoch int64) {
	if is.Epoch == was.Epoch && is.Acked > was.Acked && is.Epoch != epoch {
		s.report.add(ErrOldEpoch, "a report to %s under epoch %d was accepted at revision %d; the machine's was %d",
			is.Name, is.Epoch, is.Revision, epoch)
	}
	for name, step := range was.Steps {
		next := is.Steps[name]
		if step.State == trivet.StepDone && (next.State != trivet.StepDone || next.Try != step.Try) {
			s.report.add(ErrActionTwice, "%s of %s was done at try %d, and at revision %d it is %s at try %d",
				name, is.Name, step.Try, is.Revision, next.State, next.Try)
		}
	}
}

// checkOwners checks that a machine has one owner.
func (s *records) checkOwners(revision int64) {
	run, owner := map[string]string{}, map[string]string{}
	for name, w := range s.workflows {
		if trivet.WorkflowState(w.State).Ended() {
			continue
		}
		if other := run[w.Machine]; other != "" {
			s.report.add(ErrMachineTwice, "%s runs %s and %s at revision %d", w.Machine, other, name, revision)
		}
		run[w.Machine] = name
	}
	for name, p := range s.provisions {
		if p.Machine == "" || p.State == string(trivet.ProvisionFailed) {
			continue
		}
		if other := owner[p.Machine]; other != "" {
			s.report.add(ErrMachineTwice, "%s belongs to %s and %s at revision %d", p.Machine, other, name, revision)
		}
		owner[p.Machine] = name
	}
}

// checkLedgers checks the machines' own ledgers.
func (h *History) checkLedgers(r *report) {
	for machine, entries := range h.Ledgers {
		checkLedger(r, machine, entries)
	}
}

// action is one action of a run.
type action struct{ workflow, name string }

func checkLedger(r *report, machine string, entries []journal.Entry) {
	acked, done := map[action]bool{}, map[int64]action{} // done: by report, under the newest grant
	var grant journal.Entry
	for _, e := range entries {
		switch {
		case e.Report == nil && e.Acked == 0:
			if e.Epoch < grant.Epoch {
				r.add(ErrOldEpoch, "%s was granted epoch %d after %d", machine, e.Epoch, grant.Epoch)
			}
			grant, done = e, map[int64]action{}
		case e.Epoch != grant.Epoch:
			r.add(ErrOldEpoch, "%s did something under epoch %d after it was granted %d", machine, e.Epoch, grant.Epoch)
		case e.Report == nil:
			for seq, a := range done {
				acked[a] = acked[a] || seq <= e.Acked
			}
		case e.Report.State == trivet.StepDone:
			done[e.Report.Seq] = action{grant.Workflow, e.Report.Action}
		case e.Report.State == trivet.StepRunning && acked[action{grant.Workflow, e.Report.Action}]:
			r.add(ErrActionTwice, "%s began %s of run %s again at %s", machine, e.Report.Action, grant.Workflow, e.Time)
		}
	}
}
