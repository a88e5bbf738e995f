package trivet

import "time"

// Pause says that a provision, or its run, was paused by an operator. It is removed when that is resumed or has ended.
type Pause struct {
	By    string    `json:"by"`             // the account that paused it
	Since time.Time `json:"since,omitzero"` // when
	// Power is the power request that the run waited for, which is made when it is resumed. Of a provision it is empty.
	Power string `json:"power,omitempty"`
}

// PauseRelease is the release of heads and agents that know pauses.
const PauseRelease Release = "0.3.1"

// RetryRequest says how a provision that failed is retried: by default from the beginning, on a machine that is chosen
// as the first one was.
type RetryRequest struct {
	// Step is the action that the machine of the last run goes on with; those before it are not done again.
	Step string `json:"step,omitempty"`
	// SameMachine begins again on the machine of the last run, also where a selector would choose another one.
	SameMachine bool `json:"sameMachine,omitempty"`
	// Accept accepts that machine first, as the operator does for one in quarantine.
	Accept bool `json:"accept,omitempty"`
}

// ReplaceRequest says how the machine of a provision is replaced.
type ReplaceRequest struct {
	Reason string `json:"reason,omitempty"` // for people
	// Machine is the machine to replace, where the request must fail if another one serves the provision.
	Machine string `json:"machine,omitempty"`
	// Wait replaces it also where no other machine is free: the provision waits for one.
	Wait bool `json:"wait,omitempty"`
}

// MaxReplaceReason bounds the reason of a ReplaceRequest, in bytes.
const MaxReplaceReason = 256

// QueuePlace is the place of a provision among those that wait for the same: a machine with the same labels, or one
// machine. Older ones are before it. It is counted when it is asked for, up to MaxQueueCount.
type QueuePlace struct {
	Project   string `json:"project"`        // of the provision
	Provision string `json:"provision"`      // its name in its project
	Position  int    `json:"position"`       // from 1; 0: behind the MaxQueueCount that were counted
	Of        int    `json:"of"`             // how many wait, itself included
	More      bool   `json:"more,omitempty"` // there are more than Of
	For       string `json:"for"`            // what they wait for, such as "labels rack=r1"
}

// Queue is places in queues.
type Queue struct {
	Items []QueuePlace `json:"items"`
	More  bool         `json:"more,omitempty"` // there are provisions that wait and are not in Items
}

// MaxQueueCount is how many provisions are counted for one answer about places in queues.
const MaxQueueCount = 10_000
