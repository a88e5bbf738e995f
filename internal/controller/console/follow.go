package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/bmc"
	"github.com/trivet-project/trivet/internal/replica"
	"github.com/trivet-project/trivet/internal/wait"
)

// Bounds of what is kept of a run by one head, in bytes: the beginning and the end.
const (
	maxBegin = 1 << 20
	maxTail  = 64 << 10
	// maxAttempts bounds the logs of a run: a head has another one each time that it begins to collect.
	maxAttempts = 60
)

// Text is written to the log in batches of this size, in bytes, or at this interval.
const (
	batchBytes    = 16 << 10
	batchInterval = 2 * time.Second
)

// Waits before a console that was lost is opened again, and one that there is not.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
	noConsole  = 5 * time.Minute
)

// follower collects the console of a machine during one run.
type follower struct {
	consoles Consoles
	logs     *replica.Logs
	run      *trivet.Workflow
	key      trivet.LogKey
	cancel   context.CancelFunc
	done     chan struct{}

	// What follows is used by the follower's goroutine, and by others once it is done.
	session string    // the last one
	noted   string    // why there is no console, as the log has it
	batch   []byte    // not written yet
	tail    []byte    // the end of all text
	at      int64     // bytes in the log
	omitted int64     // bytes that are not in the log
	written time.Time // when a batch was written last
}

// start begins to collect, until stop.
func start(consoles Consoles, logs *replica.Logs, run *trivet.Workflow) *follower {
	f := &follower{consoles: consoles, logs: logs, run: run, done: make(chan struct{}),
		key: trivet.LogKey{Action: trivet.LogConsole, Epoch: run.Spec.Epoch + 1}}
	var ctx context.Context
	ctx, f.cancel = context.WithCancel(context.Background())
	go func() {
		defer close(f.done)
		f.follow(ctx)
	}()
	return f
}

// stop returns when all is written. It may be called again.
func (f *follower) stop() {
	f.cancel()
	<-f.done
}

func (f *follower) follow(ctx context.Context) {
	if f.key.Attempt = f.nextAttempt(); f.key.Attempt > maxAttempts {
		return
	}
	for pause := firstRetry; ctx.Err() == nil; {
		opened, err := f.read(ctx)
		if opened {
			pause = firstRetry
		}
		if !errors.Is(err, context.Canceled) {
			f.note(err)
		}
		f.write()
		if errors.Is(err, bmc.ErrNoConsole) {
			pause = noConsole
		}
		if wait.Sleep(ctx, pause) != nil {
			break
		}
		pause = min(2*pause, lastRetry)
	}
	f.finish()
}

// nextAttempt returns the number of a log that no head has written, also one that cannot be asked now: of n heads, this
// one has every n-th number.
func (f *follower) nextAttempt() int {
	heads, own, attempt := f.logs.Tables.PeerURLs(f.logs.Self), map[int]bool{}, 1
	for other := range heads {
		if other < f.logs.Self {
			attempt++
		}
	}
	parts, err := f.logs.Store.Parts(f.run.FullName())
	if err != nil {
		return maxAttempts + 1
	}
	for _, p := range parts {
		if p.Action == f.key.Action {
			own[p.Attempt] = true
		}
	}
	for own[attempt] {
		attempt += len(heads) + 1
	}
	return attempt
}

// read collects until the session is lost, and returns why.
func (f *follower) read(ctx context.Context) (opened bool, err error) {
	machine := f.run.Spec.Machine
	s, err := f.consoles.Open(ctx, machine, trivet.ConsoleRequest{Previous: f.session})
	if err != nil {
		return false, err
	}
	f.session, f.noted = s.Session, ""
	for from := s.Offset; ctx.Err() == nil; {
		text, err := f.consoles.Read(ctx, machine, s.Session, from)
		if err != nil {
			return true, err
		}
		if text.Missed > 0 {
			f.add(fmt.Appendf(nil, "\n[trivet: %d bytes are missing]\n", text.Missed))
		}
		f.add(text.Text)
		if len(f.batch) >= batchBytes || time.Since(f.written) >= batchInterval {
			f.write()
		}
		if from = text.Next; text.Ended != "" {
			return true, errors.New(text.Ended)
		}
	}
	return true, ctx.Err()
}

// note writes into the log why there is no console, once.
func (f *follower) note(err error) {
	if err.Error() == f.noted {
		return
	}
	f.noted = err.Error()
	f.batch = fmt.Appendf(f.batch, "\n[trivet: no console: %v]\n", err)
}

// add adds text of the machine. Zero bytes are gaps in logs.
func (f *follower) add(text []byte) {
	text = bytes.ReplaceAll(text, []byte{0}, nil)
	f.tail = append(f.tail, text...)
	f.tail = f.tail[max(0, len(f.tail)-maxTail):]
	room := max(0, maxBegin-int(f.at)-len(f.batch))
	n := min(room, len(text))
	f.batch = append(f.batch, text[:n]...)
	f.omitted += int64(len(text) - n)
}

// write writes the batch. One that cannot be written, as the disk is full, is left out of the log.
func (f *follower) write() {
	f.written = time.Now()
	if len(f.batch) == 0 {
		return
	}
	if f.logs.Store.Append(f.run.FullName(), f.key, f.at, f.batch) == nil {
		f.at += int64(len(f.batch))
	}
	f.batch = f.batch[:0]
}

// finish writes the rest, and the end of the text where some was left out before.
func (f *follower) finish() {
	if f.omitted > 0 {
		last := f.tail[max(0, int64(len(f.tail))-f.omitted):]
		if left := f.omitted - int64(len(last)); left > 0 {
			f.batch = fmt.Appendf(f.batch, "\n[trivet: %d bytes are left out]\n", left)
		}
		f.batch = append(f.batch, last...)
	}
	f.write()
}
