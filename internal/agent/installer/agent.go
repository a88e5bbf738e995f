// Package installer is the agent in the installer OS: it authenticates to the heads, is granted a run, performs its
// actions and reports them.
//
// The order of the files: [Run] (agent.go) resumes a run or sends hello (hello.go), then syncs until it ends (sync.go)
// and handles the grants in the answers (grant.go). A goroutine performs the granted run (work.go, attempt.go). It
// never waits for a head: its reports go into the journal, and the next sync sends all that are not acknowledged. Only
// before memory is lost (reboot, kexec, power off) must every report be in the store.
package installer

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/agent/action"
	"github.com/trivet-project/trivet/internal/agent/installer/journal"
)

// Client calls the heads, any that answers. Errors wrap the root package's sentinels; an agent stops its run at
// ErrFenced and ErrUnauthenticated, and retries after any other.
type Client interface {
	// Hello consumes the token and registers the key. A repeated hello, after a lost answer, returns the same grant.
	Hello(ctx context.Context, h trivet.Hello) (trivet.Grant, error)
	// Sync may take req.Wait longer than a round trip.
	Sync(ctx context.Context, req trivet.Sync) (trivet.Grant, error)
	// Logs appends to the log of an attempt; a repeated offset changes nothing.
	Logs(ctx context.Context, workflow string, key trivet.LogKey, offset int64, data []byte) error
}

// Config configures an agent. Client, Do and BootID are required.
type Config struct {
	Client Client
	// Do performs one attempt of an action; in a machine it is [action.Env.Do].
	Do func(ctx context.Context, at *action.Attempt) error

	Machine string // name, from the kernel command line; empty: unknown, to be enrolled
	MAC     string // of the port it booted from
	Token   string // consumed by hello
	Key     string // public, base64; hello registers it
	BootID  string // one per boot of the machine
	Version string

	Inventory trivet.Inventory
	// Journal keeps the reports; nil means memory. State is a directory in the machine's memory (tmpfs) where a
	// restarted agent finds the state of the last one; empty means that it starts with hello.
	Journal *journal.Journal
	State   string

	Clock *Clock       // is set to the heads' time; may be nil
	Log   *slog.Logger // nil: none
}

// Timeouts and pauses of the agent.
const (
	coalesce        = 20 * time.Millisecond // reports wait this long for others, to share a sync
	backoffMin      = 250 * time.Millisecond
	backoffMax      = 8 * time.Second
	syncTimeout     = 15 * time.Second // beyond what the head was allowed to wait
	defaultInterval = 10 * time.Second
	killTimeout     = 30 * time.Second // for a cancelled action to end
	refusedPause    = 15 * time.Second // before the machine reboots for another token
	refusedMax      = 3                // consecutive refusals, without a run, before it does
	// consecutive answers of an old epoch, without a run, before the machine reboots
	behindMax         = 30
	idlePause         = time.Second     // between syncs that a head answers at once, without work
	logTimeout        = 5 * time.Second // for the last logs, before memory is lost
	logsBeforeTimeout = time.Second     // for logs, before the report that their action has ended
)

type agent struct {
	Config
	logs *logs

	// Used only by the goroutine that syncs.
	machine  string
	epoch    int64         // of the current or last run; 0: none
	dropped  int64         // the last epoch whose run was dropped; it and all before are over
	behind   int           // consecutive answers of an old epoch
	work     *work         // nil when there is no run
	granted  trivet.Grant  // of work
	interval time.Duration // between syncs while a run is in progress
	pause    backoff
	refused  int
	heads    Heads // as saved for the next process

	contacted sync.Once // done when a head has answered

	mu    sync.Mutex // guards following
	blobs []string
}

// Run runs the agent until ctx ends (EndNone and its cause) or until the machine must end. All goroutines have ended
// when it returns.
func Run(ctx context.Context, c Config) (action.Ending, error) {
	if c.Journal == nil {
		c.Journal = journal.Memory()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	a := &agent{Config: c, machine: c.Machine, logs: newLogs(c.Client), interval: defaultInterval}
	logCtx, stopLogs := context.WithCancel(context.WithoutCancel(ctx))
	var shipping sync.WaitGroup
	shipping.Go(func() { a.logs.ship(logCtx) })

	ending, err := a.loop(ctx)
	a.stopWork()
	if err == nil {
		a.flushLogs(ctx)
	}
	stopLogs()
	shipping.Wait()
	return ending, err
}

// loop sends hello and then syncs, until the machine must end or ctx ends.
func (a *agent) loop(ctx context.Context) (action.Ending, error) {
	if !a.resume() {
		ending, err := a.hello(ctx)
		if ending != action.EndNone || err != nil {
			return ending, err
		}
	}
	for {
		if ending := a.settle(); ending != action.EndNone {
			return ending, nil
		}
		ending, err := a.sync(ctx)
		if ending != action.EndNone || err != nil {
			return ending, err
		}
	}
}

// settle returns the ending of the run once it is over and acknowledged; [action.EndNone] until then.
func (a *agent) settle() action.Ending {
	if a.work == nil || !a.work.isOver() || !a.Journal.Settled() {
		return action.EndNone
	}
	out := a.work.outcome
	a.work = nil
	if out.stuck {
		a.Log.Error("an action does not end; the machine must reboot", "epoch", a.epoch)
		return action.EndReboot
	}
	return out.ending
}

// flushLogs waits up to logTimeout for the last logs. The machine ends without them otherwise.
func (a *agent) flushLogs(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	if err := a.logs.flush(ctx); err != nil {
		a.Log.Warn("the last logs did not reach a head", "error", err)
	}
}
