package replica

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/peer"
	"github.com/trivet-project/trivet/internal/runlog"
	"github.com/trivet-project/trivet/internal/state"
)

// Logs is the output of the actions of runs. Each head has only the pieces that agents sent to it, so a reader gets
// what all of them have.
type Logs struct {
	Self   string        // this head's name
	Store  *runlog.Store // what this head has
	Tables *state.Tables
	Client *peer.Client
}

const (
	// LogPollInterval is how often a reader queries the other heads for new text.
	LogPollInterval = time.Second
	// LogChunkBytes bounds one read, in bytes.
	LogChunkBytes = 64 << 10
	// logReadTimeout bounds one read from another head.
	logReadTimeout = 3 * queryTimeout
	// logRetryAfter is how long a reader does not query a head that failed.
	logRetryAfter = 10 * time.Second
)

// LogView is the log of one run as one reader reads it. It is for one goroutine.
type LogView struct {
	logs    *Logs
	run     *trivet.Workflow
	own     map[trivet.LogKey]int64 // sizes
	failed  bool                    // this head's disk cannot read what it has
	heads   map[string]*remoteLog   // by head
	queried time.Time               // when the other heads were queried last
	settled map[trivet.LogKey]int64 // sizes up to which all acknowledged text has been found since
	latest  bool                    // settled covers everything
}

// remoteLog is what another head has.
type remoteLog struct {
	url        string
	parts      map[trivet.LogKey]int64
	err        error // why it cannot be read
	retryAfter time.Time
}

// View returns a view of a run's log. The first call must be Refresh.
func (l *Logs) View(run *trivet.Workflow) *LogView {
	return &LogView{logs: l, run: run, heads: map[string]*remoteLog{}}
}

// Refresh finds out which text there is: on this head, and on the others if they were not queried for a while, or if
// latest requests all that was acknowledged by now.
func (v *LogView) Refresh(ctx context.Context, latest bool) error {
	if v.latest = latest; latest || time.Since(v.queried) >= LogPollInterval {
		// An agent sends one piece after the other: the pieces before one that was found earlier are on some head by
		// now.
		v.settled = v.sizes()
		v.query(ctx)
		v.queried = time.Now()
	}
	parts, err := v.logs.Store.Parts(v.run.FullName())
	v.own, v.failed = v.valid(parts), false
	if v.noteOwn(err) {
		return nil
	}
	return err
}

// noteOwn reports whether an error is one of this head's disk, and notes it.
func (v *LogView) noteOwn(err error) bool {
	faulty := errors.Is(err, trivet.ErrUnavailable)
	v.failed = v.failed || faulty
	return faulty
}

// query queries the other heads for the parts that they have, all at once.
func (v *LogView) query(ctx context.Context) {
	urls := v.logs.Tables.PeerURLs(v.logs.Self)
	maps.DeleteFunc(v.heads, func(name string, _ *remoteLog) bool { return urls[name] == "" })
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	var queries sync.WaitGroup
	defer queries.Wait()
	for name, url := range urls {
		h := v.heads[name]
		if h == nil {
			h = &remoteLog{}
			v.heads[name] = h
		}
		if h.url = url; h.err != nil && !v.latest && time.Now().Before(h.retryAfter) {
			continue
		}
		queries.Go(func() {
			var parts []runlog.Part
			h.setError(v.logs.Client.Call(ctx, url, partsPath, logRequest{Workflow: v.run.FullName()}, &parts))
			if h.err == nil {
				h.parts = v.valid(parts)
			}
		})
	}
}

func (h *remoteLog) setError(err error) {
	if h.err = err; err != nil {
		h.retryAfter = time.Now().Add(logRetryAfter)
	}
}

// valid returns the sizes of the parts that the run can have.
func (v *LogView) valid(parts []runlog.Part) map[trivet.LogKey]int64 {
	sizes := map[trivet.LogKey]int64{}
	for _, p := range parts {
		known := v.run.Spec.Action(p.Action) != nil || p.Action == trivet.LogConsole
		if known && runlog.CheckKey(p.LogKey) == nil && p.Epoch > v.run.Spec.Epoch && p.Bytes > 0 &&
			p.Bytes <= runlog.MaxBytes {
			sizes[p.LogKey] = p.Bytes
		}
	}
	return sizes
}

// sizes returns the size of each part on the head that has most of it.
func (v *LogView) sizes() map[trivet.LogKey]int64 {
	sizes := maps.Clone(v.own)
	if sizes == nil {
		sizes = map[trivet.LogKey]int64{}
	}
	for _, h := range v.heads {
		for p, n := range h.parts {
			sizes[p] = max(sizes[p], n)
		}
	}
	return sizes
}

// Parts returns the parts that any head has, in no order.
func (v *LogView) Parts() (parts []runlog.Part) {
	for p, n := range v.sizes() {
		parts = append(parts, runlog.Part{LogKey: p, Bytes: n})
	}
	return parts
}

// Unreachable returns the heads that could not be read, or not completely, by name.
func (v *LogView) Unreachable() (names []string) {
	for name, h := range v.heads {
		if h.err != nil {
			names = append(names, name)
		}
	}
	if v.failed {
		names = append(names, v.logs.Self)
	}
	slices.Sort(names)
	return names
}
