package provision

import (
	"fmt"
	"slices"

	"github.com/trivet-project/trivet"
)

// WantsSecond reports whether a second machine is to install a provision: it races, or its first run is slow and it
// hedges.
func WantsSecond(p *trivet.Provision) bool {
	return (p.Spec.Race == trivet.RaceMachines || p.Status.Hedge != "") && mayRace(&p.Status)
}

// MayHedge reports whether a second machine is to install a provision once its run is slow.
func MayHedge(p *trivet.Provision) bool {
	return p.Spec.Hedge && p.Status.Hedge == "" && mayRace(&p.Status)
}

// mayRace reports whether a provision may have a second machine: its first run goes on, and it was not decided yet that
// there is none. After a failure alternatives are used as without a race.
func mayRace(st *trivet.ProvisionStatus) bool {
	return st.State == trivet.ProvisionRunning && st.Paused == nil && st.Race == nil && st.RaceNote == "" &&
		len(st.Spent) == 0 && st.Withdrawn == 0
}

// RaceBudget returns how many second machines there may be at the same time in a site with so many machines.
func RaceBudget(site *trivet.SiteSpec, machines int) int {
	percent := site.RaceBudgetOrDefault()
	if percent == 0 {
		return 0
	}
	return max(1, machines*percent/100)
}

// Withdraw returns the status after the second machine was taken from the provision.
func Withdraw(st trivet.ProvisionStatus, why string) trivet.ProvisionStatus {
	st.RaceNote = fmt.Sprintf("%s; %s goes on alone", why, st.Machine)
	st.Race = nil
	st.Withdrawn++
	return st
}

// AfterRace returns the status of a provision after one of its two runs has ended, and the run that must be stopped, if
// any. The first success ends the race. After a failure the other run goes on alone, as its machine may have what the
// failed one lacked; what both lack fails it, too.
func AfterRace(st trivet.ProvisionStatus, run Run) (after trivet.ProvisionStatus, stop *trivet.RaceRun) {
	ended, other := bothRuns(&st)
	if st.Race.Workflow == run.Name {
		ended, other = other, ended
	}
	st.Race = nil
	if run.State == trivet.WorkflowSucceeded {
		st = ServedBy(st, ended)
		st.State, st.Failure, st.Reason = trivet.ProvisionSucceeded, nil, ""
		st.RaceNote = fmt.Sprintf("%s was first; %s was stopped", ended.Machine, other.Machine)
		return st, &other
	}
	st = ServedBy(st, other)
	st.RaceNote = fmt.Sprintf("the run on %s was cancelled; %s goes on alone", ended.Machine, other.Machine)
	if run.Failure != nil {
		st.RaceNote = fmt.Sprintf("%s; %s goes on alone", failedOn(ended.Machine, run.Failure), other.Machine)
	}
	if run.Failure == nil || run.Failure.Type != trivet.FaultMachine {
		st.Withdrawn++
	} else {
		spent := trivet.SpentMachine{FormerMachine: former(run), Workflow: run.Name, Rack: run.Machine.Spec.Rack,
			Failure: *run.Failure}
		if spent.Address != "" {
			spent.AddressKept = fmt.Sprintf("machine %s has its own", other.Machine)
		}
		st.Spent = append(slices.Clone(st.Spent), spent)
	}
	return st, nil
}

// bothRuns returns the runs of a race.
func bothRuns(st *trivet.ProvisionStatus) (first, second trivet.RaceRun) {
	return trivet.RaceRun{Machine: st.Machine, MachineUID: st.MachineUID, Address: st.Address, Workflow: st.Workflow}, *st.Race
}

// ServedBy returns the status with the machine of a run as that of the provision.
func ServedBy(st trivet.ProvisionStatus, run trivet.RaceRun) trivet.ProvisionStatus {
	st.Machine, st.MachineUID, st.Address, st.Workflow = run.Machine, run.MachineUID, run.Address, run.Workflow
	return st
}
