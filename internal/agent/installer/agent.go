// Package installer is Trivet in a machine: it proves itself to the heads, is granted a run, does its actions and reports them.
//
// The way through the files: [Run] (agent.go) resumes or says hello (hello.go), then syncs for as long as it lives
// (sync.go) and obeys the answers (obey.go). A granted run is done by a goroutine of its own (work.go, attempt.go), which
// never waits for a head: its reports go into the journal, and the next sync takes all that are not acknowledged. The only
// barrier is before memory is lost (a reboot, kexec, power off): then every report must be in the store first.
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

// Door is the heads as an agent sees them: any that answers. Errors carry the root package's sentinels; an agent stops its
// run at ErrFenced and ErrUnauthenticated, and tries again after any other.
type Door interface {
	// Hello spends the token and registers the key. The same hello again, after a lost answer, gives the same grant.
	Hello(ctx context.Context, h trivet.Hello) (trivet.Grant, error)
	// Sync may take req.Wait longer than a round trip.
	Sync(ctx context.Context, req trivet.Sync) (trivet.Grant, error)
	// Logs appends to the log of an attempt; a repeated offset changes nothing.
	Logs(ctx context.Context, workflow, action string, try int, offset int64, data []byte) error
}

// Config is all an agent needs. Door, Do and BootID must be set.
type Config struct {
	Door Door
	// Do does one attempt of an action; in a machine it is [action.Do] on its environment.
	Do func(ctx context.Context, at *action.Attempt) error

	Machine string // name, from the kernel command line; empty: unknown, to be enrolled
	MAC     string // of the port it booted from
	Token   string // spent at hello
	Key     string // public, base64; hello registers it
	BootID  string // one per boot of the machine
	Version string

	Inventory trivet.Inventory
	// Journal keeps the reports; nil means memory. State is a directory in the machine's memory (tmpfs) where a restarted
	// agent finds what the last one held; empty means that it starts with hello.
	Journal *journal.Journal
	State   string

	Clock *Clock       // learns the heads' time; may be nil
	Log   *slog.Logger // nil: none
}

// The agent's patience.
const (
	coalesce     = 20 * time.Millisecond // reports wait this long for others to share their sync
	backoffMin   = 250 * time.Millisecond
	backoffMax   = 8 * time.Second
	syncTimeout  = 15 * time.Second // beyond what the head was allowed to wait
	defaultBeat  = 10 * time.Second
	deathTimeout = 30 * time.Second // for a cancelled action to end
	refusedPause = 15 * time.Second // before the machine boots anew for another token
	refusedMax   = 3                // refusals in a row, without a run, before it does
	behindMax    = 30               // answers in a row of an epoch that is over, without a run, before the machine boots anew
	idlePause    = time.Second      // between syncs that a head answers at once with nothing
	logTimeout   = 5 * time.Second  // for the last logs, before memory is lost
	logsFirst    = time.Second      // for logs, before the report of their action's end
)

type agent struct {
	Config
	logs *logs

	// Of the goroutine that syncs alone.
	machine string
	epoch   int64 // of the run that is held, or was the last one; 0: none
	dropped int64 // the last epoch whose run was dropped: it is over, as are all before
	behind  int   // answers in a row that were of an epoch that is over
	work    *work // nil when there is nothing to do
	beat    time.Duration
	pause   backoff
	refused int
	heads   []string // as they are kept for the next process

	met sync.Once // a head has answered

	mu    sync.Mutex // guards following
	blobs []string
}

// Run lives an agent's life until ctx ends (EndNone and its cause) or the machine is to end. It has stopped everything that
// it began when it returns.
func Run(ctx context.Context, c Config) (action.Ending, error) {
	if c.Journal == nil {
		c.Journal = journal.Memory()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	a := &agent{Config: c, machine: c.Machine, logs: newLogs(c.Door), beat: defaultBeat}
	logCtx, stopLogs := context.WithCancel(context.WithoutCancel(ctx))
	var shipping sync.WaitGroup
	shipping.Go(func() { a.logs.ship(logCtx) })

	ending, err := a.live(ctx)
	a.stopWork()
	if err == nil {
		a.flushLogs(ctx)
	}
	stopLogs()
	shipping.Wait()
	return ending, err
}

// live is hello and then sync after sync, until the machine or ctx ends.
func (a *agent) live(ctx context.Context) (action.Ending, error) {
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

// settle reports whether the work is over and all of it acknowledged.
func (a *agent) settle() action.Ending {
	if a.work == nil || !a.work.isOver() || !a.Journal.Settled() {
		return action.EndNone
	}
	out := a.work.outcome
	a.work = nil
	if out.stuck {
		a.Log.Error("an action does not end; the machine must boot anew", "epoch", a.epoch)
		return action.EndReboot
	}
	return out.ending
}

// flushLogs waits a little for the last logs; they are not worth a machine that does not boot.
func (a *agent) flushLogs(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	if err := a.logs.flush(ctx); err != nil {
		a.Log.Warn("the last logs did not reach a head", "error", err)
	}
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
