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

// EventType is the type of an event of a watch.
type EventType string

// The types of events.
const (
	// Put: a record was created or changed, or exists when the watch begins.
	Put EventType = "put"
	// Delete: a record was deleted, or no longer matches the options.
	Delete EventType = "delete"
	// Synced: the initial state is complete.
	Synced EventType = "synced"
	// Reset: the watch could not be continued. The state follows again, up to the next Synced; what it lacks was
	// deleted.
	Reset EventType = "reset"
)

// Event is one event of a watch.
type Event struct {
	Type     EventType
	Kind     trivet.Kind
	Project  string // of a kind that belongs to projects
	Name     string
	Record   trivet.Record   // of a Put
	Raw      json.RawMessage // of a Put: the record as the head sent it
	Revision int64
}

// WatchOptions select records. No kind means all kinds that the account may read.
type WatchOptions struct {
	Kinds []trivet.Kind
	// Project selects the records of one project, of the kinds that belong to projects; empty: of all projects.
	Project string
	Names   []string
	Labels  string // see [ListOptions]
	// From is the revision after which to begin; 0 begins with the current state and Synced. Several events may have one
	// revision: a program that stores where it continues stores a revision once it has got an event of a later one.
	From int64
}

// Watch returns the changes of records until ctx ends. When a head fails, it continues at another one
// from the same revision; if the store no longer holds that revision, it returns Reset and begins again. It ends
// with an error only where a retry cannot help, or with ctx.
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
	c         *Client
	options   WatchOptions
	from      int64 // revision up to which everything was sent; 0 until synced
	at        int64 // revision of the newest event; one transaction may make several events
	count     int   // events of it that were sent
	seen      int   // events of it that this connection received
	sent      bool  // a part of a state that is not synced yet was sent
	progress  bool  // the last connection sent an event
	connected bool  // a head has responded
	yield     func(Event, error) bool
}

func (w *watch) run(ctx context.Context) error {
	for pause := time.Duration(0); ; {
		err := w.connect(ctx)
		var p *trivet.Problem
		switch {
		case errors.Is(err, errStopped): // first: the loop that has ended must not get the error of ctx, too
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, trivet.ErrCompacted):
			if err := w.reset(); err != nil {
				return err
			}
		case w.c.failFast && !w.connected && errors.Is(err, errNoHead):
			return err
		case errors.As(err, &p) && !isHeadFault(err), errors.Is(err, trivet.ErrUnauthenticated):
			return err
		case w.from == 0 && w.sent: // cut off before it was synced
			if err := w.reset(); err != nil {
				return err
			}
		}
		if w.progress {
			pause = 0
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause+50*time.Millisecond, 2*time.Second)
	}
}

func (w *watch) reset() error {
	w.from, w.at, w.count, w.sent = 0, 0, 0, false
	return w.send(Event{Type: Reset})
}

func (w *watch) send(e Event) error {
	w.progress = true
	if !w.yield(e, nil) {
		return errStopped
	}
	return nil
}

// connect watches at one head until it fails or times out.
func (w *watch) connect(ctx context.Context) error {
	w.progress, w.seen = false, 0
	caller := ctx
	ctx, cancel := context.WithCancelCause(caller)
	defer cancel(nil)
	silence := time.AfterFunc(watchSilence, func() { cancel(errSilent) })
	defer silence.Stop()
	cl := call{method: http.MethodGet, path: "/v1/watch", query: w.query(), timeout: -1, retry: w.connected}
	resp, _, err := w.c.send(ctx, cl)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	w.connected = true
	frames := newFrameReader(resp.Body)
	for {
		f, err := frames.next()
		if err != nil {
			if caller.Err() == nil { // not the caller's deadline: this head was serving
				w.c.note(caller, headOf(resp), errors.Join(err, context.Cause(ctx)))
			}
			return err
		}
		silence.Reset(watchSilence)
		if err := w.handle(f); err != nil {
			if errors.Is(err, errDrained) {
				w.c.heads.failed(headOf(resp), HeadUnready, err)
			}
			return err
		}
	}
}

// errDrained: the head ends its feeds, as it is about to stop or is cut off.
var errDrained = errors.New("the head ended its watches")

// errSilent: the head does not respond. It may carry out the request nevertheless.
var errSilent = errors.New("the head does not respond")

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
	if w.options.Project != "" {
		q.Set("project", w.options.Project)
	}
	if len(w.options.Names) > 0 {
		q.Set("names", strings.Join(w.options.Names, ","))
	}
	if w.from > 0 {
		q.Set("from", strconv.FormatInt(w.from, 10))
	}
	return q
}

// isDuplicate reports whether an event was sent before, over a connection that broke in the middle of its revision.
// With the first event of a later revision, all events of the previous one were sent.
func (w *watch) isDuplicate(revision int64) bool {
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

// handle processes one frame.
func (w *watch) handle(f frame) error {
	w.c.session.advance(f.id)
	if w.from > 0 {
		switch f.event {
		case trivet.WatchPut, trivet.WatchDelete:
			if w.isDuplicate(f.id) {
				return nil
			}
		default:
			w.from = max(w.from, f.id)
		}
	}
	switch f.event {
	case trivet.WatchPut:
		w.sent = true
		return w.put(f)
	case trivet.WatchDelete:
		var gone trivet.DeletedRecord
		if err := json.Unmarshal(f.data, &gone); err != nil {
			return err
		}
		return w.send(Event{Type: Delete, Kind: gone.Kind, Project: gone.Project, Name: gone.Name,
			Revision: f.id})
	case trivet.WatchSynced:
		w.from = f.id
		return w.send(Event{Type: Synced, Revision: f.id})
	case trivet.WatchDrain:
		return errDrained
	case trivet.WatchError:
		var p trivet.Problem
		if err := json.Unmarshal(f.data, &p); err != nil {
			return err
		}
		return &p
	}
	return nil // a bookmark, or an event of a newer version
}

// put sends a record. Kinds that this version does not know are skipped.
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
	return w.send(Event{Type: Put, Kind: head.Kind, Project: head.Project, Name: head.Name, Record: r, Raw: f.data,
		Revision: f.id})
}
