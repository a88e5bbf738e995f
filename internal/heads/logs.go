package heads

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/runlog"
)

// Logs is what the actions of runs wrote. Each head has the pieces that agents sent to it and no others, so a reader is given
// what all of them have.
type Logs struct {
	Store  *runlog.Store // what this head has
	Fleet  *fleet.Fleet
	Caller *Caller
}

const (
	// LogPoll is how often a reader asks the others what they have got.
	LogPoll = time.Second
	// logSulk is how long a head that did not answer a reader is left alone.
	logSulk = 10 * time.Second
	// LogChunk bounds what is read at once, in bytes, and logTime how long another head may take for it.
	LogChunk = 64 << 10
	logTime  = 3 * askTime
)

// LogView is the log of one run as one reader sees it. It is for one goroutine.
type LogView struct {
	logs    *Logs
	run     *trivet.Workflow
	own     map[runlog.Part]int64 // by action and try: up to where there is something
	others  map[string]*otherLog  // by head
	asked   time.Time             // the others
	settled map[runlog.Part]int64 // up to where all that was acknowledged has been found since
	latest  bool                  // all of it is
}

// otherLog is what another head has.
type otherLog struct {
	url   string
	parts map[runlog.Part]int64
	err   error // why it cannot be asked
	again time.Time
}

// View begins to read. Look must follow.
func (l *Logs) View(run *trivet.Workflow) *LogView {
	return &LogView{logs: l, run: run, others: map[string]*otherLog{}}
}

// Look finds out what there is: here, and at the others if they were not asked for a while, or if latest wants all that was
// acknowledged by now.
func (v *LogView) Look(ctx context.Context, latest bool) error {
	if v.latest = latest; latest || time.Since(v.asked) >= LogPoll {
		// An agent sends one piece after the other: what comes before one that was seen earlier is at some head by now.
		v.settled = v.sizes()
		v.ask(ctx)
		v.asked = time.Now()
	}
	parts, err := v.logs.Store.Parts(v.run.Name)
	v.own = v.valid(parts)
	return err
}

// ask asks the other heads what they have, all at once.
func (v *LogView) ask(ctx context.Context) {
	urls := v.logs.Fleet.PeerURLs(v.logs.Fleet.Self())
	maps.DeleteFunc(v.others, func(name string, _ *otherLog) bool { return urls[name] == "" })
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var asking sync.WaitGroup
	defer asking.Wait()
	for name, url := range urls {
		o := v.others[name]
		if o == nil {
			o = &otherLog{}
			v.others[name] = o
		}
		if o.url = url; o.err != nil && !v.latest && time.Now().Before(o.again) {
			continue
		}
		asking.Go(func() {
			var parts []runlog.Part
			o.failed(Call(ctx, v.logs.Caller.client, url+Prefix+"logs/parts", logAsk{Workflow: v.run.Name}, &parts))
			if o.err == nil {
				o.parts = v.valid(parts)
			}
		})
	}
}

func (o *otherLog) failed(err error) {
	if o.err = err; err != nil {
		o.again = time.Now().Add(logSulk)
	}
}

// valid leaves out what cannot be.
func (v *LogView) valid(parts []runlog.Part) map[runlog.Part]int64 {
	sizes := map[runlog.Part]int64{}
	for _, p := range parts {
		if v.run.Spec.Action(p.Action) != nil && p.Attempt > 0 && p.Attempt <= runlog.MaxAttempt && p.Bytes > 0 && p.Bytes <= runlog.MaxBytes {
			sizes[runlog.Part{Action: p.Action, Attempt: p.Attempt}] = p.Bytes
		}
	}
	return sizes
}

// sizes is up to where there is something of each part at any head.
func (v *LogView) sizes() map[runlog.Part]int64 {
	sizes := maps.Clone(v.own)
	if sizes == nil {
		sizes = map[runlog.Part]int64{}
	}
	for _, o := range v.others {
		for p, n := range o.parts {
			sizes[p] = max(sizes[p], n)
		}
	}
	return sizes
}

// Parts gives what there is, in no order.
func (v *LogView) Parts() (parts []runlog.Part) {
	for p, n := range v.sizes() {
		parts = append(parts, runlog.Part{Action: p.Action, Attempt: p.Attempt, Bytes: n})
	}
	return parts
}

// Silent are the heads that could not be asked, or not for all that they have, by name.
func (v *LogView) Silent() (names []string) {
	for name, o := range v.others {
		if o.err != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Read fills buf, of at most LogChunk bytes, with a part's bytes from an offset, and gives how many there are: none at the end
// of what there is to tell yet. A zero is a hole that nobody fills who answers; one that may be filled yet is an end.
func (v *LogView) Read(ctx context.Context, p runlog.Part, offset int64, buf []byte) (int, error) {
	n, err := v.logs.Store.Read(v.run.Name, p.Action, p.Attempt, offset, buf)
	if err != nil && !errors.Is(err, trivet.ErrNotFound) {
		return 0, err
	}
	clear(buf[n:])
	key := runlog.Part{Action: p.Action, Attempt: p.Attempt}
	for _, name := range slices.Sorted(maps.Keys(v.others)) {
		o := v.others[name]
		has := min(max(0, o.parts[key]-offset), int64(len(buf)))
		if o.err != nil || bytes.IndexByte(buf[:has], 0) < 0 {
			continue
		}
		n = max(n, fill(buf, v.readOther(ctx, o, key, offset)))
	}
	from := n
	if !v.latest && len(v.others) > 0 {
		from = int(min(max(0, v.settled[key]-offset), int64(n)))
	}
	if hole := bytes.IndexByte(buf[from:n], 0); hole >= 0 {
		n = from + hole
	}
	return n, nil
}

// fill puts text where there are holes, and gives where it ends.
func fill(buf, text []byte) int {
	text = text[:min(len(text), len(buf))]
	for i, b := range text {
		if buf[i] == 0 {
			buf[i] = b
		}
	}
	return len(text)
}

// readOther gives what another head has at an offset.
func (v *LogView) readOther(ctx context.Context, o *otherLog, p runlog.Part, offset int64) []byte {
	ctx, cancel := context.WithTimeout(ctx, logTime)
	defer cancel()
	var got logText
	ask := logAsk{Workflow: v.run.Name, Action: p.Action, Attempt: p.Attempt, Offset: offset}
	err := Call(ctx, v.logs.Caller.client, o.url+Prefix+"logs/read", ask, &got)
	if err == nil && len(got.Text) > LogChunk {
		err = fmt.Errorf("log of %s: %w: %d bytes at once", v.run.Name, trivet.ErrInvalid, len(got.Text))
	}
	if o.failed(err); err != nil {
		return nil
	}
	return got.Text
}
