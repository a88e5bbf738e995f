package cluster

import (
	"encoding/json"
	"os"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/agent/installer/journal"
)

// history is all that was observed in a run: by programs that write and read, by watches, by machines that boot, in
// the machines' own ledgers, and at the end. Times are since its beginning, by the test's monotonic clock.
type history struct {
	mu    sync.Mutex
	began time.Time
	History
}

// History is the part that is kept in a file.
type History struct {
	Seed     uint64                     `json:"seed"`
	Version  string                     `json:"version"` // of the heads
	Began    int64                      `json:"began"`   // in nanoseconds since 1970
	Took     time.Duration              `json:"took"`
	Ops      []op                       `json:"ops"`
	Feeds    map[string][]change        `json:"feeds"` // by watcher
	Whole    []change                   `json:"whole"` // the changes of a watch from the same beginning, after the end
	Leases   []lease                    `json:"leases"`
	Boots    []time.Duration            `json:"boots"` // when a machine had booted up to its script
	Waits    []wait                     `json:"waits"`
	Assisted []string                   `json:"assisted"` // runs whose machine an operator had to power on again
	Ledgers  map[string][]journal.Entry `json:"ledgers"`  // by machine
	Final    map[string]string          `json:"final"`    // the value of each key at the end
	Deaths   []string                   `json:"deaths"`   // of heads that ended by themselves
	Managed  []string                   `json:"managed"`  // machines with a BMC
	Commands []command                  `json:"commands"` // of BMCs
	Full     []string                   `json:"full"`     // what a full store did wrong
	Differ   []string                   `json:"differ"`   // records that differ between heads at the end
	Faults   []fault                    `json:"faults"`
	Cut      bool                       `json:"cut,omitempty"` // Whole ends early: what follows it was compacted
	Troubles []string                   `json:"troubles"`      // of the run itself: it proves nothing
}

// Outcomes of an operation.
const (
	done    = "done"
	unknown = "unknown" // it may have happened, or may still happen
	refused = "refused" // it has not happened
)

// op is one operation of a program on one key.
type op struct {
	Client int    `json:"client"`
	Do     string `json:"do"` // "write", "swap", "read", "create"
	Key    string `json:"key"`
	// Value is what it writes, Was what a swap found and replaces, or what a read returned.
	Value string `json:"value,omitempty"`
	Was   string `json:"was,omitempty"`
	// Revision is the write's own; 0: not known.
	Revision int64         `json:"revision,omitempty"`
	Head     string        `json:"head"`
	Call     time.Duration `json:"call"`
	Return   time.Duration `json:"return"`
	Outcome  string        `json:"outcome"`
	Cause    string        `json:"cause,omitempty"`
}

// change is one step of a watch. It has those fields of the record that the checks need.
type change struct {
	Revision int64  `json:"revision"`
	Type     string `json:"type"`
	Kind     string `json:"kind,omitempty"`
	Name     string `json:"name,omitempty"`
	Value    string `json:"value,omitempty"` // of a key that programs write
	Sum      uint32 `json:"sum,omitempty"`   // of the whole record
	// At is when it was reported.
	At time.Duration `json:"at,omitempty"`
	// Of machines, provisions and workflows.
	State   string                `json:"state,omitempty"`
	Machine string                `json:"machine,omitempty"`
	Epoch   int64                 `json:"epoch,omitempty"`
	Acked   int64                 `json:"acked,omitempty"`
	Intent  string                `json:"intent,omitempty"` // the desired power state: "off", "cycle", "on"
	Power   string                `json:"power,omitempty"`
	Step    string                `json:"step,omitempty"` // the running one
	Steps   map[string]stepReport `json:"steps,omitempty"`
}

// stepReport is the state of an action by the record.
type stepReport struct {
	State trivet.StepState `json:"state"`
	Try   int              `json:"try"`
}

// lease is an address that a head acknowledged.
type lease struct {
	MAC     string        `json:"mac"`
	Address string        `json:"address"`
	Head    string        `json:"head"`
	Call    time.Duration `json:"call"`
	Return  time.Duration `json:"return"`
}

// wait is something that had to end: a provision that must succeed, or a deadline that must fire.
type wait struct {
	Name string `json:"name"`
	// Deadline is what must pass before it may fail; 0: it must succeed.
	Deadline time.Duration `json:"deadline,omitempty"`
	Call     time.Duration `json:"call"`
	Return   time.Duration `json:"return,omitempty"` // 0: it never ended
	State    string        `json:"state,omitempty"`
	Machine  string        `json:"machine,omitempty"`
	Reason   string        `json:"reason,omitempty"`
}

// fault is a fault that was injected.
type fault struct {
	Kind string        `json:"kind"`
	What string        `json:"what"`
	From time.Duration `json:"from"`
	To   time.Duration `json:"to"` // healed
	// The store's revisions at the beginning and the end; 0: not known.
	First int64 `json:"first,omitempty"`
	Last  int64 `json:"last,omitempty"`
}

func newHistory(seed uint64) *history {
	now := time.Now()
	return &history{began: now, History: History{
		Seed: seed, Began: now.UnixNano(), Feeds: map[string][]change{},
		Ledgers: map[string][]journal.Entry{}, Final: map[string]string{},
	}}
}

// now is the time since the beginning.
func (h *history) now() time.Duration { return time.Since(h.began) }

// note changes the history.
func (h *history) note(change func(*History)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change(&h.History)
}

func (h *history) died(head, why string) {
	h.note(func(x *History) { x.Deaths = append(x.Deaths, head+": "+why) })
}

func (h *history) trouble(what string, err error) {
	if err != nil {
		h.note(func(x *History) { x.Troubles = append(x.Troubles, what+": "+err.Error()) })
	}
}

// save writes everything to a file.
func (h *history) save(path string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	text, err := json.Marshal(&h.History)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}
