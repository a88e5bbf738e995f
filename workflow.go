package trivet

import (
	"slices"
	"time"
)

// Workflow is one run of a template on one machine. Its spec is rendered when the machine is claimed and constant
// from then on, so the agent's copy is always that of the record.
type Workflow struct {
	Meta
	Spec   WorkflowSpec   `json:"spec"`
	Status WorkflowStatus `json:"status,omitzero"`
}

// FormerRuns is how many former runs are kept of one machine: those that have ended and are not its last one. They are
// history, which no head holds in memory.
const FormerRuns = 16

// WorkflowSpec is the rendered template.
type WorkflowSpec struct {
	Machine      string `json:"machine"`                // the machine that it runs on
	MachineUID   string `json:"machineUID,omitempty"`   // of that machine
	Provision    string `json:"provision,omitempty"`    // the provision that it is an attempt of
	ProvisionUID string `json:"provisionUID,omitempty"` // of that provision
	Template     string `json:"template"`               // the template that it was rendered from
	Attempt      int    `json:"attempt,omitempty"`      // of the provision, from 1
	// Continues is the run whose actions, up to the one that was retried, are not done again by this one.
	Continues string `json:"continues,omitempty"`
	// Redeploys is the run that has installed what the machine ran when this one began. That may run until an agent is
	// granted this one.
	Redeploys string `json:"redeploys,omitempty"`
	// Epoch is the machine's at the claim. Everything of this run has a higher one.
	Epoch int64 `json:"epoch,omitempty"`
	// Release is the mode of a run that releases the machine. Trivet makes its actions; it has neither a provision nor a
	// template.
	Release ReleaseMode `json:"release,omitempty"`
	// Actions are the template's, rendered.
	Actions []Action `json:"actions"`
	// Disk are the machine's hints, as of the claim. They select the disk of actions that name none.
	Disk DiskHints `json:"disk,omitzero"`
	// Images are those that Actions refer to, as of the claim.
	Images []ImageRef `json:"images,omitempty"`
	// Seed is the data for cloud-init.
	Seed Seed `json:"seed,omitzero"`
	// Times are how long the steps took in earlier runs, as of the claim: those of which enough are known.
	Times []StepTime `json:"times,omitempty"`
}

// ImageRef is an image as a workflow uses it: by digest, so that a later import does not change a run.
type ImageRef struct {
	Name string `json:"name"` // of the Image record
	ImageSpec
}

// Seed is cloud-init's NoCloud data, without what is known only at the grant.
type Seed struct {
	Hostname    string   `json:"hostname,omitempty"`    // of the installed system
	SSHKeys     []string `json:"sshKeys,omitempty"`     // lines of authorized_keys
	UserData    string   `json:"userData,omitempty"`    // cloud-init user-data
	NetworkData string   `json:"networkData,omitempty"` // cloud-init network-config, version 2
	// Interfaces are the machine's, as of the claim, where the provision has no NetworkData. At the grant they become
	// the NetworkData of the agent's run.
	Interfaces []Interface `json:"interfaces,omitempty"`
}

// The boot steps: the steps of a run besides its actions, each with a deadline.
const (
	StepPowerOn   = "power-on"    // the BMC was commanded, or the operator was asked
	StepDHCP      = "dhcp"        // the firmware requested an address
	StepScript    = "boot-script" // iPXE fetched the script
	StepKernel    = "kernel"      // kernel and initramfs were fetched
	StepHello     = "hello"       // the agent authenticated and was granted the run
	StepFirstBoot = "first-boot"  // the installed system phoned home
)

// StepPowerOff is the last step of a run that releases a machine with a BMC: the BMC reports the machine off. It is not
// among the boot steps, since actions of templates may have its name.
const StepPowerOff = "power-off"

// BootSteps are the boot steps in their order.
var BootSteps = []string{StepPowerOn, StepDHCP, StepScript, StepKernel, StepHello, StepFirstBoot}

// IsBootStep reports whether a step is a boot step, not an action.
func IsBootStep(name string) bool { return slices.Contains(BootSteps, name) }

// WorkflowState is the state of a run.
type WorkflowState string

// The states of a run.
const (
	WorkflowBooting   WorkflowState = "booting"   // until the agent's hello
	WorkflowRunning   WorkflowState = "running"   // an agent holds it
	WorkflowStarting  WorkflowState = "starting"  // all actions done; waits for the installed system
	WorkflowStopping  WorkflowState = "stopping"  // all actions of a release done; waits until the machine is off
	WorkflowSucceeded WorkflowState = "succeeded" //
	WorkflowFailed    WorkflowState = "failed"    //
	WorkflowCancelled WorkflowState = "cancelled" //
)

// Ended reports whether the state is final.
func (s WorkflowState) Ended() bool {
	return s == WorkflowSucceeded || s == WorkflowFailed || s == WorkflowCancelled
}

// WorkflowStatus is the progress of a run.
type WorkflowStatus struct {
	State WorkflowState `json:"state,omitempty"`
	// Epoch is the one whose reports are accepted now; 0 while no agent may report.
	Epoch int64 `json:"epoch,omitempty"`
	// Acked is the sequence number of the last report accepted in Epoch.
	Acked int64 `json:"acked,omitempty"`
	// SeedEpoch is the epoch under which the seed was written: only its phone-home ends the run.
	SeedEpoch int64 `json:"seedEpoch,omitempty"`
	// Steps are the boot steps and the actions in their order.
	Steps []Step `json:"steps,omitempty"`
	// Frozen: the cluster was recovered from older records, so it is not known how far the run has got. Nothing is
	// done for it until an operator decides (trivet recover resolve).
	Frozen bool `json:"frozen,omitempty"`
	// Resets counts how often the agent was lost during the run and the machine had to boot again.
	Resets  int      `json:"resets,omitempty"`
	Failure *Failure `json:"failure,omitempty"`
	// Paused: no further action is started, no deadline counts and no power request is made, until it is resumed.
	Paused  *Pause    `json:"paused,omitempty"`
	Started time.Time `json:"started,omitzero"` // at the claim
	Ended   time.Time `json:"ended,omitzero"`   // when it succeeded, failed or was cancelled
}

// StepState is the state of a step.
type StepState string

// The states of a step.
const (
	StepWaiting StepState = ""        // not started yet
	StepRunning StepState = "running" // its deadline applies
	StepDone    StepState = "done"    // acknowledged; it never runs again in this workflow
	StepFailed  StepState = "failed"  // its attempts are used up
	StepSkipped StepState = "skipped" // not needed
	// StepCancelled: the run was cancelled during the step.
	StepCancelled StepState = "cancelled"
)

// Step is the progress of a boot step or an action. Elapsed is a measured duration, never the difference of two
// clocks.
type Step struct {
	Name        string    `json:"name"` // the list's key
	State       StepState `json:"state,omitempty"`
	Attempt     int       `json:"attempt,omitempty"` // the current or last one, from 1
	MaxAttempts int       `json:"maxAttempts"`       // allowed in all
	// Failures counts the attempts that failed. One that ended because its agent was lost does not count.
	Failures int `json:"failures,omitempty"`
	// Timeout bounds one attempt. The heads count how much of it is used while the step runs (see their checkpoints).
	Timeout Duration  `json:"timeout"`
	Elapsed Duration  `json:"elapsed,omitempty"` // of the last attempt, once the step has ended
	Started time.Time `json:"started,omitzero"`  // of the current or last attempt
	First   time.Time `json:"first,omitzero"`    // start of the first attempt, where there were several
	Ended   time.Time `json:"ended,omitzero"`    // of the last attempt; zero while the step runs
	Cause   string    `json:"cause,omitempty"`   // why the last failed attempt failed
	// Late is the attempt that was reported last as late: it took longer than spec.times has for the step.
	Late int    `json:"late,omitempty"`
	Note string `json:"note,omitempty"` // what it waits for, or its last message
}

// FailureType is the cause of a failure. Only a failure of the machine is retried on another machine.
type FailureType string

// The types of failure.
const (
	FaultMachine       FailureType = "machine"
	FaultPlatform      FailureType = "platform"
	FaultImage         FailureType = "image"
	FaultNetwork       FailureType = "network"
	FaultConfiguration FailureType = "configuration"
	FaultControlPlane  FailureType = "control-plane"
)

// Failure is why a run or a provision failed.
type Failure struct {
	Type  FailureType `json:"type"`
	Step  string      `json:"step,omitempty"` // the step that failed
	Cause string      `json:"cause"`          // for people
	// Console is the last lines that the machine wrote to its serial console, without control characters; empty where it
	// was not collected (see [BMC]).
	Console string `json:"console,omitempty"`
	// EventLog is the last entries of the machine's BMC's event log since the run began, one a line, which are read
	// when the machine was powered off because it was at fault; empty where there are none, or they could not be read.
	EventLog string `json:"eventLog,omitempty"`
}

// EventLogRelease is the release that added the event log to failures.
const EventLogRelease Release = "0.3.1"

// Validate checks a workflow by itself. Only Trivet writes workflows.
func (w *Workflow) Validate() error {
	var p problems
	p.name(w.Name)
	p.need("spec.machine", w.Spec.Machine)
	p.max("spec.actions", len(w.Spec.Actions), MaxActions)
	return p.err()
}

// Step returns the step with a name, or nil.
func (s *WorkflowStatus) Step(name string) *Step {
	for i := range s.Steps {
		if s.Steps[i].Name == name {
			return &s.Steps[i]
		}
	}
	return nil
}

// Current returns the running step, or nil.
func (s *WorkflowStatus) Current() *Step {
	for i := range s.Steps {
		if s.Steps[i].State == StepRunning {
			return &s.Steps[i]
		}
	}
	return nil
}

// Action returns the action with a name, or nil.
func (s *WorkflowSpec) Action(name string) *Action {
	for i := range s.Actions {
		if s.Actions[i].Name == name {
			return &s.Actions[i]
		}
	}
	return nil
}
