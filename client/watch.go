package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
)

// EventType says what an event of a watch means.
type EventType string

// The types of events.
const (
	// Put: a record was made or changed, or is there as the watch begins.
	Put EventType = "put"
	// Delete: a record is gone, or no longer among those that the options choose.
	Delete EventType = "delete"
	// Synced: everything that was there as the watch began has been told.
	Synced EventType = "synced"
	// Reset: the feed could not be continued. Everything is told anew, up to the next Synced; what is not told is gone.
	Reset EventType = "reset"
)

// Event is one step of a watch.
type Event struct {
	Type     EventType
	Kind     trivet.Kind
	Name     string
	Record   trivet.Record   // of a Put
	Raw      json.RawMessage // of a Put: the record as the head sent it
	Revision int64
}

// WatchOptions choose what to follow. No kind means all kinds that the account may read.
type WatchOptions struct {
	Kinds  []trivet.Kind
	Names  []string
	Labels string // see [ListOptions]
	// From is the revision after which to begin; 0 begins with what is there, and Synced.
	From int64
}

// Watch follows records for as long as ctx lasts and the loop goes on. It moves to another head by itself when one is
// lost, and goes on where it was; when the store no longer reaches back to there, it says Reset and begins anew. It ends
// with an error only where trying again cannot help, or with ctx.
func (c *Client) Watch(ctx context.Context, o WatchOptions) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		w := &watch{c: c, options: o, from: o.From, yield: yield}
		if err := w.run(ctx); err != nil && !errors.Is(err, errStopped) {
			yield(Event{}, fmt.Errorf("watch: %w", err))
		}
	}
}

var errStopped = errors.New("the loop has ended")

type watch struct {
	c       *Client
	options WatchOptions
	from    int64 // revision up to which everything was told; 0 until synced
	at      int64 // revision of the newest event; one transaction may make several events
	count   int   // events of it that were told
	seen    int   // events of it that came by this connection
	told    bool  // something was told of a state that is not synced yet
	fresh   bool  // the last connection told something
	begun   bool  // a head has answered
	yield   func(Event, error) bool
}

func (w *watch) run(ctx context.Context) error {
	for pause := time.Duration(0); ; {
		err := w.connect(ctx)
		var p *trivet.Problem
		switch {
		case errors.Is(err, errStopped): // first: a loop that has ended must not be told that ctx has, too
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, trivet.ErrCompacted):
			if err := w.reset(); err != nil {
				return err
			}
		case w.c.failFast && !w.begun && errors.Is(err, errNobody):
			return err
		case errors.As(err, &p) && !isHeadFault(err), errors.Is(err, trivet.ErrUnauthenticated):
			return err
		case w.from == 0 && w.told: // cut in the middle of the beginning
			if err := w.reset(); err != nil {
				return err
			}
		}
		if w.fresh {
			pause = 0
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause+50*time.Millisecond, 2*time.Second)
	}
}

func (w *watch) reset() error {
	w.from, w.at, w.count, w.told = 0, 0, 0, false
	return w.tell(Event{Type: Reset})
}

func (w *watch) tell(e Event) error {
	w.fresh = true
	if !w.yield(e, nil) {
		return errStopped
	}
	return nil
}

// connect follows one head until it is gone or silent.
func (w *watch) connect(ctx context.Context) error {
	w.fresh, w.seen = false, 0
	caller := ctx
	ctx, cancel := context.WithCancelCause(caller)
	defer cancel(nil)
	silence := time.AfterFunc(watchSilence, func() { cancel(errSilent) })
	defer silence.Stop()
	resp, _, err := w.c.send(ctx, call{method: http.MethodGet, path: "/v1/watch", query: w.query(), timeout: -1, patient: w.begun})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	w.begun = true
	frames := newFrameReader(resp.Body)
	for {
		f, err := frames.next()
		if err != nil {
			if caller.Err() == nil { // it is not the caller's time that is up: this head was serving
				w.c.note(caller, headOf(resp), errors.Join(err, context.Cause(ctx)))
			}
			return err
		}
		silence.Reset(watchSilence)
		if err := w.take(f); err != nil {
			if errors.Is(err, errDrain) {
				w.c.heads.failed(headOf(resp), HeadUnready, err)
			}
			return err
		}
	}
}

// errDrain: the head ends its feeds, as it is about to stop or is cut off.
var errDrain = errors.New("the head sends its watches away")

// errSilent: the head does not say a word. What it was asked it may do all the same.
var errSilent = errors.New("the head fell silent")

func headOf(resp *http.Response) string { return "https://" + resp.Request.URL.Host }

func (w *watch) query() map[string][]string {
	q := selection(w.options.Labels, "")
	var kinds []string
	for _, k := range w.options.Kinds {
		kinds = append(kinds, string(k))
	}
	if len(kinds) > 0 {
		q.Set("kinds", strings.Join(kinds, ","))
	}
	if len(w.options.Names) > 0 {
		q.Set("names", strings.Join(w.options.Names, ","))
	}
	if w.from > 0 {
		q.Set("from", strconv.FormatInt(w.from, 10))
	}
	return q
}

// again says whether an event was told already, by a connection that broke in the middle of its revision. With the first
// event of a later revision, all events of the one before were told.
func (w *watch) again(revision int64) bool {
	if revision > w.at {
		w.from, w.at, w.count, w.seen = max(w.from, w.at), revision, 0, 0
	}
	w.seen++
	if w.seen <= w.count {
		return true
	}
	w.count = w.seen
	return false
}

// take tells one frame to the loop.
func (w *watch) take(f frame) error {
	w.c.session.saw(f.id)
	if w.from > 0 {
		switch f.event {
		case trivet.WatchPut, trivet.WatchDelete:
			if w.again(f.id) {
				return nil
			}
		default:
			w.from = max(w.from, f.id)
		}
	}
	switch f.event {
	case trivet.WatchPut:
		w.told = true
		return w.put(f)
	case trivet.WatchDelete:
		var gone trivet.DeletedRecord
		if err := json.Unmarshal(f.data, &gone); err != nil {
			return err
		}
		return w.tell(Event{Type: Delete, Kind: gone.Kind, Name: gone.Name, Revision: f.id})
	case trivet.WatchSynced:
		w.from = f.id
		return w.tell(Event{Type: Synced, Revision: f.id})
	case trivet.WatchDrain:
		return errDrain
	case trivet.WatchError:
		var p trivet.Problem
		if err := json.Unmarshal(f.data, &p); err != nil {
			return err
		}
		return &p
	}
	return nil // a bookmark, or what a newer head says
}

// put tells a record. One of a kind that this program does not know is passed over.
func (w *watch) put(f frame) error {
	var head trivet.Meta
	if err := json.Unmarshal(f.data, &head); err != nil {
		return err
	}
	info, err := trivet.LookupKind(string(head.Kind))
	if err != nil {
		return nil
	}
	r, err := w.c.Kind(info).decode(f.data)
	if err != nil {
		return err
	}
	return w.tell(Event{Type: Put, Kind: head.Kind, Name: head.Name, Record: r, Raw: f.data, Revision: f.id})
}
