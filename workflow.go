package trivet

import (
	"slices"
	"time"
)

// Workflow is one run of a template on one machine. Its spec is made at the claim and constant from then on: what the
// agent holds is what the record says.
type Workflow struct {
	Meta
	Spec   WorkflowSpec   `json:"spec"`
	Status WorkflowStatus `json:"status,omitzero"`
}

// WorkflowSpec is the rendered work.
type WorkflowSpec struct {
	Machine   string `json:"machine"`
	Provision string `json:"provision,omitempty"`
	Template  string `json:"template"`
	Attempt   int    `json:"attempt,omitempty"` // of the provision, from 1
	// Epoch is the machine's at the claim. Whatever belongs to this run carries a higher one.
	Epoch int64 `json:"epoch,omitempty"`
	// Actions are the template's, with every text rendered.
	Actions []Action `json:"actions"`
	// Disk are the machine's hints at the claim. They select the disk of actions that name none.
	Disk DiskHints `json:"disk,omitzero"`
	// Images are those that Actions name, as they were at the claim.
	Images []ImageRef `json:"images,omitempty"`
	// Seed is what cloud-init gets.
	Seed Seed `json:"seed,omitzero"`
}

// ImageRef is an image as a workflow uses it: by digest, so that a later import does not change a run.
type ImageRef struct {
	Name string `json:"name"`
	ImageSpec
}

// Seed is cloud-init's NoCloud data, but for what is known only at the grant.
type Seed struct {
	Hostname    string   `json:"hostname,omitempty"`
	SSHKeys     []string `json:"sshKeys,omitempty"`
	UserData    string   `json:"userData,omitempty"`
	NetworkData string   `json:"networkData,omitempty"`
}

// The boot steps: what happens to a machine outside its agent's actions, each with a deadline.
const (
	StepPowerOn   = "power-on"    // the BMC was told, or the operator was asked
	StepDHCP      = "dhcp"        // the firmware asked for an address
	StepScript    = "boot-script" // iPXE fetched the script
	StepKernel    = "kernel"      // kernel and initramfs were fetched
	StepHello     = "hello"       // the agent proved itself and was granted the run
	StepFirstBoot = "first-boot"  // the installed system phoned home
)

// BootSteps are the names above in their order.
var BootSteps = []string{StepPowerOn, StepDHCP, StepScript, StepKernel, StepHello, StepFirstBoot}

// IsBootStep says whether a step is one of the boot's, not an action.
func IsBootStep(name string) bool { return slices.Contains(BootSteps, name) }

// WorkflowState is how far a run is.
type WorkflowState string

// A run's life.
const (
	WorkflowBooting   WorkflowState = "booting"   // on the way to the agent's hello
	WorkflowRunning   WorkflowState = "running"   // an agent holds it
	WorkflowStarting  WorkflowState = "starting"  // all actions done; waits for the installed system
	WorkflowSucceeded WorkflowState = "succeeded" //
	WorkflowFailed    WorkflowState = "failed"    //
	WorkflowCancelled WorkflowState = "cancelled" //
)

// Ended says whether the run is over.
func (s WorkflowState) Ended() bool {
	return s == WorkflowSucceeded || s == WorkflowFailed || s == WorkflowCancelled
}

// WorkflowStatus is how the run goes.
type WorkflowStatus struct {
	State WorkflowState `json:"state,omitempty"`
	// Epoch is the machine's under which reports are taken now; zero while no agent may report.
	Epoch int64 `json:"epoch,omitempty"`
	// Acked is the sequence number of the last report taken under Epoch.
	Acked int64 `json:"acked,omitempty"`
	// Steps are the boot steps and the actions in their order.
	Steps []Step `json:"steps,omitempty"`
	// Resets counts how often the agent was lost during the run and the machine had to boot again.
	Resets  int       `json:"resets,omitempty"`
	Failure *Failure  `json:"failure,omitempty"`
	Started time.Time `json:"started,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
}

// StepState is how far a step is.
type StepState string

// A step's life.
const (
	StepWaiting StepState = ""        // its turn has not come
	StepRunning StepState = "running" // its deadline counts
	StepDone    StepState = "done"    // acknowledged: it never runs again in this workflow
	StepFailed  StepState = "failed"  // its attempts are used up
	StepSkipped StepState = "skipped" // was not needed
)

// Step is one event of a provision. Elapsed is kept as a duration, never compared as two clocks' times.
type Step struct {
	Name        string    `json:"name"` // the list's key
	State       StepState `json:"state,omitempty"`
	Attempt     int       `json:"attempt,omitempty"` // the current or last one, from 1
	MaxAttempts int       `json:"maxAttempts"`       // allowed in all
	// Failures counts the attempts that failed. One that ended because its agent was lost does not count.
	Failures int `json:"failures,omitempty"`
	// Timeout bounds one attempt; Elapsed is how much of it is used, as of the last checkpoint.
	Timeout Duration  `json:"timeout"`
	Elapsed Duration  `json:"elapsed,omitempty"`
	Started time.Time `json:"started,omitzero"` // of the first attempt, for people
	Ended   time.Time `json:"ended,omitzero"`
	Cause   string    `json:"cause,omitempty"` // why the last failed attempt failed
	Note    string    `json:"note,omitempty"`  // what it waits for, or its last word
}

// FailureType says whose fault a failure is. Only the machine's own spends another machine.
type FailureType string

// The types of failure.
const (
	FaultMachine       FailureType = "machine"
	FaultImage         FailureType = "image"
	FaultNetwork       FailureType = "network"
	FaultConfiguration FailureType = "configuration"
	FaultControlPlane  FailureType = "control-plane"
)

// Failure is why a run or a provision ended badly.
type Failure struct {
	Type  FailureType `json:"type"`
	Step  string      `json:"step,omitempty"`
	Cause string      `json:"cause"`
}

// Validate checks a workflow by itself. Only Trivet writes workflows.
func (w *Workflow) Validate() error {
	var p problems
	p.name(w.Name)
	p.need("spec.machine", w.Spec.Machine)
	p.max("spec.actions", len(w.Spec.Actions), MaxActions)
	return p.err()
}

// Step finds a step by name; nil when there is none.
func (s *WorkflowStatus) Step(name string) *Step {
	for i := range s.Steps {
		if s.Steps[i].Name == name {
			return &s.Steps[i]
		}
	}
	return nil
}

// Current is the step whose deadline counts; nil when none does.
func (s *WorkflowStatus) Current() *Step {
	for i := range s.Steps {
		if s.Steps[i].State == StepRunning {
			return &s.Steps[i]
		}
	}
	return nil
}

// Action finds an action of the run by name; nil when there is none.
func (s *WorkflowSpec) Action(name string) *Action {
	for i := range s.Actions {
		if s.Actions[i].Name == name {
			return &s.Actions[i]
		}
	}
	return nil
}
