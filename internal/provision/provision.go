// Package provision decides how a provision goes on when one of its runs has ended. It is pure.
package provision

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
)

// Run is a run of a provision that has ended.
type Run struct {
	Machine *trivet.Machine
	Name    string               // of the workflow
	State   trivet.WorkflowState // an ended one
	Failure *trivet.Failure      // nil unless it failed
	Address string               // of the machine's boot port; empty where it has none
	Kept    string               // why the address cannot move to another machine; empty where it can
	// Elsewhere: the network or platform of the machine is at fault, which another machine may not share.
	Elsewhere bool
}

// After returns the status of a provision after a run of it has ended. It succeeds or fails with the run, except that
// where the machine was at fault, or what it shares with some machines only, it waits for another one, as long as it
// has alternatives.
func After(spec *trivet.ProvisionSpec, st trivet.ProvisionStatus, run Run) trivet.ProvisionStatus {
	st.Failure, st.Reason = run.Failure, ""
	switch {
	case run.State == trivet.WorkflowSucceeded:
		st.State = trivet.ProvisionSucceeded
		return st
	case run.Failure == nil:
		st.State, st.Reason = trivet.ProvisionFailed, "cancelled"
		return st
	}
	st.State = trivet.ProvisionFailed
	st.Reason = failedOn(run.Machine.Name, run.Failure)
	if run.Failure.Type != trivet.FaultMachine {
		if run.Elsewhere && len(st.Spent)+st.Withdrawn < Alternatives(spec) {
			st.Withdrawn++
			goOn(&st)
			st.Failure = run.Failure // with which it ends where no other machine is free
		}
		return st
	}
	st.Spent = append(slices.Clone(st.Spent), trivet.SpentMachine{FormerMachine: former(run), Workflow: run.Name,
		Rack: run.Machine.Spec.Rack, Failure: *run.Failure})
	switch {
	case len(st.Spent)+st.Withdrawn <= Alternatives(spec):
		leave(&st, run)
	case len(st.Spent) > 1:
		st.Reason += suspect(st.Spent)
	}
	return st
}

// leave lets a provision wait for another machine than that of a run, and first until that is off where its address
// moves.
func leave(st *trivet.ProvisionStatus, run Run) {
	goOn(st)
	if run.Address != "" && run.Kept == "" {
		st.WaitsFor = PowerOf(run.Machine.Name)
		st.Reason += fmt.Sprintf("; its address %s moves to the next machine once it is off", run.Address)
	}
}

// goOn lets a provision wait for another machine. The one that it had keeps its address.
func goOn(st *trivet.ProvisionStatus) {
	st.State, st.Failure = trivet.ProvisionPending, nil
	st.Machine, st.MachineUID, st.Address = "", "", ""
}

func former(run Run) trivet.FormerMachine {
	return trivet.FormerMachine{Machine: run.Machine.Name, MachineUID: run.Machine.UID, Address: run.Address,
		AddressKept: run.Kept}
}

// Alternatives returns how many machines a provision may use, one after the other, after the first one.
func Alternatives(spec *trivet.ProvisionSpec) int {
	if spec.Machine != "" {
		return 0
	}
	return spec.AlternativesOrDefault()
}

// Spent reports whether a provision has failed on a machine, or an operator replaced it, so that it is not used again.
func Spent(st *trivet.ProvisionStatus, m *trivet.Machine) bool {
	return st.Replaced != nil && st.Replaced.MachineUID == m.UID || slices.ContainsFunc(st.Spent, func(s trivet.SpentMachine) bool { return s.MachineUID == m.UID })
}

// Elsewhere reports whether a machine is in another rack than those that a provision has failed on, whose fault may be
// the rack's. That holds for every machine where it has failed on none.
func Elsewhere(st *trivet.ProvisionStatus, m *trivet.Machine) bool {
	return !slices.ContainsFunc(st.Spent, func(s trivet.SpentMachine) bool { return s.Rack == m.Spec.Rack })
}

// PowerOf is what a provision waits for until a machine that failed is off, or cannot be powered off.
func PowerOf(machine string) string { return "power " + machine }

// Last returns the last machine that a provision had and does not use again; nil where there is none.
func Last(st *trivet.ProvisionStatus) *trivet.FormerMachine {
	switch {
	case len(st.Spent) > 0: // since the replacement
		return &st.Spent[len(st.Spent)-1].FormerMachine
	case st.Replaced != nil:
		return &st.Replaced.FormerMachine
	}
	return nil
}

func failedOn(machine string, f *trivet.Failure) string {
	return fmt.Sprintf("%s failed on %s (%s): %s", f.Step, machine, f.Type, f.Cause)
}

// suspect says what several failures of one provision suggest.
func suspect(spent []trivet.SpentMachine) string {
	var earlier []string
	for _, s := range spent[:len(spent)-1] {
		earlier = append(earlier, fmt.Sprintf("%s failed on %s", s.Failure.Step, s.Machine))
	}
	return fmt.Sprintf("; before, %s: %d machines have failed with this configuration, so check its template, "+
		"parameters and image before another one is used", strings.Join(earlier, ", "), len(spent))
}
