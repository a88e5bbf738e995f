package trivet

import "time"

// The API of agents, as JSON over HTTPS. An agent signs each request with its key (internal/auth). Its hello registers
// the key, and is authorized by the token of its boot script. Heads ignore unknown fields.
//
//	POST /agent/v1/hello  Hello -> Grant   uses the token of the boot script and registers the key
//	POST /agent/v1/sync   Sync  -> Grant   reports, heartbeat and waiting for work, all in one
//	POST /agent/v1/logs?workflow=W&action=A&epoch=E&attempt=N&offset=B   raw bytes; a repeated offset
//	     changes nothing

// Hello is an agent's first request after it booted.
type Hello struct {
	Machine   string    `json:"machine"`           // the name in the boot script
	MAC       string    `json:"mac"`               // of the port it booted from
	Token     string    `json:"token"`             // from the kernel command line
	Key       string    `json:"key"`               // Ed25519 public key, base64
	BootID    string    `json:"bootID"`            // random, one per boot
	Version   string    `json:"version,omitempty"` // of the agent's program
	Release   Release   `json:"release,omitempty"` // what the agent understands
	Inventory Inventory `json:"inventory"`
}

// Sync is every later request of an agent. An empty one is a heartbeat.
type Sync struct {
	Machine string   `json:"machine"`           // its name as the agent knows it
	Epoch   int64    `json:"epoch"`             // of the agent's current or last run; 0: none
	BootID  string   `json:"bootID"`            // as in the hello
	Reports []Report `json:"reports,omitempty"` // all that are not yet acknowledged, in order
	// Progress of the running action. It is shown, and not stored.
	Progress *Progress `json:"progress,omitempty"`
	// Wait is how long the head may delay its response (at most MaxWait, and half of the time after which a silent
	// agent is lost) until there is work or an order. Only an idle agent waits, and one whose run is paused.
	Wait Duration `json:"wait,omitempty"`
	// Paused: the agent holds its run, as it is paused, and waits until it is resumed.
	Paused bool `json:"paused,omitempty"`
}

// MaxHello bounds a hello, in bytes: it comes from machines that no one knows.
const MaxHello = 64 << 10

// MaxWait bounds Sync.Wait, MaxReports the reports in one Sync.
const (
	MaxWait    = Duration(30 * time.Second)
	MaxReports = 4 * MaxActions
)

// Report is the result, or the start, of one attempt of one action.
type Report struct {
	Seq     int64       `json:"seq"`               // from 1 in each epoch, increasing by one
	Action  string      `json:"action"`            // name in the workflow
	Attempt int         `json:"attempt"`           // from 1
	State   StepState   `json:"state"`             // running (begun), done or failed (this attempt)
	Elapsed Duration    `json:"elapsed,omitempty"` // how long the attempt has taken
	Cause   string      `json:"cause,omitempty"`   // of a failed attempt
	Fault   FailureType `json:"fault,omitempty"`   // what is at fault for a failed attempt
	// Final marks a failure that a retry cannot fix, such as a wrong argument.
	Final bool   `json:"final,omitempty"`
	Note  string `json:"note,omitempty"` // one line for people: "1.4 GiB at 210 MiB/s"
}

// Progress is how far the running action is, in the action's own unit.
type Progress struct {
	Action string `json:"action"`          // its name in the workflow
	Done   int64  `json:"done"`            // so much of it
	Total  int64  `json:"total,omitempty"` // 0: not known
	Unit   string `json:"unit,omitempty"`  // "bytes"
}

// Order is an instruction to an agent besides its run.
type Order string

// The orders.
const (
	OrderNone Order = "" // continue; when idle, wait and sync again
	// the run was taken from this agent: stop at once, report nothing more of it, wait for work
	OrderStop Order = "stop"
	OrderBoot Order = "boot" // nothing to do here: boot the local disk
	OrderOff  Order = "off"  // nothing to do here: power off
)

// Grant is a head's response to an agent.
type Grant struct {
	Machine string `json:"machine"` // its name now
	Epoch   int64  `json:"epoch"`   // the run is held under; reports name it
	// Acked is the sequence number of the last stored report; the agent drops the reports up to it.
	Acked int64  `json:"acked"`
	Order Order  `json:"order,omitempty"` // what to do besides the run
	Cause string `json:"cause,omitempty"` // of the order, for the agent's log
	// Paused: the agent ends the attempt that it is at, and starts no other one until a response is without it.
	Paused bool `json:"paused,omitempty"`
	// Run is the work, sent at hello, and at sync to an agent with another epoch.
	Run *Run `json:"run,omitempty"`
	// Heads are the API URLs of all heads, Blobs the URLs blobs are fetched from.
	Heads []string `json:"heads,omitempty"`
	Blobs []string `json:"blobs,omitempty"` // see Heads
	// Trust is the pins of the cluster's CAs, separated by commas.
	Trust string `json:"trust,omitempty"`
	// Time is the head's clock; the agent signs by it. Interval is how often the agent must sync.
	Time     time.Time `json:"time"`
	Interval Duration  `json:"interval,omitempty"` // of heartbeats: the agent must sync so often
}

// Run is all the work of a machine in an epoch, as its agent keeps it.
type Run struct {
	Workflow string       `json:"workflow"` // "NAME" or "PROJECT/NAME"
	UID      string       `json:"uid"`      // of the Workflow record
	Spec     WorkflowSpec `json:"spec"`
	// Done are the actions that are acknowledged: they are never run again. Attempts are the attempts that are used up.
	Done     []string       `json:"done,omitempty"`
	Attempts map[string]int `json:"attempts,omitempty"` // by the name of the action
	// PhoneHomes are the URLs, one at each head, that the installed system calls at its first boot until one answers.
	PhoneHomes []string `json:"phoneHomes,omitempty"`
	// Network is the boot port's network as the installed system needs it.
	Network *RunNetwork `json:"network,omitempty"`
	// Join lets the installed system join the cluster as a head; nil: it is none.
	Join *RunJoin `json:"join,omitempty"`
	// Initrd is the initramfs of the machine's platform, which all heads have: what a test of the network fetches.
	Initrd *BlobRef `json:"initrd,omitempty"`
}

// RunNetwork configures the port that the machine booted from.
type RunNetwork struct {
	Name    string   `json:"name,omitempty"`    // of the Network record
	MAC     string   `json:"mac"`               // of the port
	Address string   `json:"address,omitempty"` // CIDR notation; empty: use DHCP
	Gateway string   `json:"gateway,omitempty"` // the default router
	DNS     []string `json:"dns,omitempty"`     // addresses of the name servers
	Domain  string   `json:"domain,omitempty"`  // DNS domain
	MTU     int      `json:"mtu,omitempty"`     // 0: not set
}
