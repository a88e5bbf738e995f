package trivet

import "time"

// The agents' door: what an agent and a head say to each other, as JSON over HTTPS. An agent proves itself at hello by the
// token of its boot script and from then on by a signature with the key it made (internal/auth). Heads read leniently.
//
//	POST /agent/v1/hello  Hello -> Grant   the token of the boot script is spent, the key registered
//	POST /agent/v1/sync   Sync  -> Grant   reports, heartbeat and waiting for work, all in one
//	POST /agent/v1/logs?workflow=W&action=A&attempt=N&offset=B   raw bytes; a repeated offset changes nothing

// Hello is an agent's first word after it has booted.
type Hello struct {
	Machine   string    `json:"machine,omitempty"` // empty: unknown, to be enrolled
	MAC       string    `json:"mac"`               // of the port it booted from
	Token     string    `json:"token"`             // from the kernel command line
	Key       string    `json:"key"`               // Ed25519 public key, base64
	BootID    string    `json:"bootID"`            // random, one per boot
	Version   string    `json:"version,omitempty"`
	Inventory Inventory `json:"inventory"`
}

// Sync is everything an agent says later. An empty one is a heartbeat.
type Sync struct {
	Machine string   `json:"machine"`
	Epoch   int64    `json:"epoch"` // of the run that the agent holds or has finished; 0: it has had none
	BootID  string   `json:"bootID"`
	Reports []Report `json:"reports,omitempty"` // all that are not yet acknowledged, in order
	// Progress is shown to people and kept nowhere: how far the action that runs now is.
	Progress *Progress `json:"progress,omitempty"`
	// Wait lets the head hold its answer this long (at most MaxWait) for work or orders. Only an idle agent waits.
	Wait Duration `json:"wait,omitempty"`
}

// MaxWait bounds Sync.Wait, MaxReports the reports in one Sync.
const (
	MaxWait    = Duration(30 * time.Second)
	MaxReports = 4 * MaxActions
)

// Report says what became of one attempt of one action.
type Report struct {
	Seq     int64       `json:"seq"`     // from 1 under an epoch, rising by one
	Action  string      `json:"action"`  // name in the workflow
	Attempt int         `json:"attempt"` // from 1
	State   StepState   `json:"state"`   // running (begun), done or failed (this attempt)
	Elapsed Duration    `json:"elapsed,omitempty"`
	Cause   string      `json:"cause,omitempty"` // of a failed attempt
	Fault   FailureType `json:"fault,omitempty"`
	// Final marks a failure that another attempt cannot mend, such as a wrong argument.
	Final bool   `json:"final,omitempty"`
	Note  string `json:"note,omitempty"` // one line for people: "1.4 GiB at 210 MiB/s"
}

// Progress is how far the running action is, in the action's own unit.
type Progress struct {
	Action string `json:"action"`
	Done   int64  `json:"done"`
	Total  int64  `json:"total,omitempty"` // 0: not known
	Unit   string `json:"unit,omitempty"`  // "bytes"
}

// Order is what an agent shall do besides its run.
type Order string

// The orders.
const (
	OrderNone Order = ""     // go on; when idle, wait and sync again
	OrderStop Order = "stop" // the run is no longer this agent's: stop at once, report nothing more of it, wait for work
	OrderBoot Order = "boot" // nothing to do here: boot the local disk
	OrderOff  Order = "off"  // nothing to do here: power off
)

// Grant is a head's answer.
type Grant struct {
	Machine string `json:"machine"`
	Epoch   int64  `json:"epoch"`
	// Acked is the last report that is in the store; the agent drops those.
	Acked int64  `json:"acked"`
	Order Order  `json:"order,omitempty"`
	Cause string `json:"cause,omitempty"` // of the order, for the agent's log
	// Run is the work, sent at hello, and at sync to an agent that says another epoch.
	Run *Run `json:"run,omitempty"`
	// Heads are the API URLs of all heads, Blobs the URLs blobs are fetched from.
	Heads []string `json:"heads,omitempty"`
	Blobs []string `json:"blobs,omitempty"`
	// Time is the head's clock; the agent signs by it. Interval is how often the agent must sync.
	Time     time.Time `json:"time"`
	Interval Duration  `json:"interval,omitempty"`
}

// Run is the whole work of a machine, as the agent holds it under an epoch.
type Run struct {
	Workflow string       `json:"workflow"`
	UID      string       `json:"uid"`
	Spec     WorkflowSpec `json:"spec"`
	// Done are the actions that are acknowledged: they are never run again. Attempts are the attempts that are used up.
	Done     []string       `json:"done,omitempty"`
	Attempts map[string]int `json:"attempts,omitempty"`
	// PhoneHomes are the URLs, one at each head, that the installed system calls at its first boot until one answers.
	// PhoneHome is the first, for agents of version 0.1.
	PhoneHome  string   `json:"phoneHome,omitempty"`
	PhoneHomes []string `json:"phoneHomes,omitempty"`
	// Network is the boot port's network as the installed system needs it.
	Network *RunNetwork `json:"network,omitempty"`
}

// RunNetwork is the network of the port that the machine booted from.
type RunNetwork struct {
	MAC     string   `json:"mac"`
	Address string   `json:"address,omitempty"` // CIDR notation; empty: use DHCP
	Gateway string   `json:"gateway,omitempty"`
	DNS     []string `json:"dns,omitempty"`
	Domain  string   `json:"domain,omitempty"`
	MTU     int      `json:"mtu,omitempty"`
}
