package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
	"github.com/trivet-project/trivet/internal/store"
)

// feed is one open watch.
type feed struct {
	h       *Handler
	c       *caller
	w       http.ResponseWriter
	r       *http.Request
	filter  *watchFilter
	watcher *store.Watcher
	opened  bool
	cutOff  int // heartbeats in a row at which this head was cut off from the others
	buf     []byte
}

func (f *feed) open() {
	f.opened = true
	f.w.Header().Set("Content-Type", "text/event-stream")
	f.w.WriteHeader(http.StatusOK)
}

// flush sends what is buffered, to a client that reads.
func (f *feed) flush() error {
	until := f.h.mustRead(f.w)
	_, err := f.w.Write(f.buf)
	f.buf = f.buf[:0]
	return readBy(until, errors.Join(err, http.NewResponseController(f.w).Flush()))
}

func (f *feed) frame(event string, id int64, data []byte) error {
	f.buf = apitypes.AppendEvent(f.buf, event, id, data)
	if len(f.buf) > 64<<10 {
		return f.flush()
	}
	return nil
}

// state sends the current state. The watcher was created before, so that a change in between is sent twice rather
// than never.
func (f *feed) state(ctx context.Context) error {
	for _, kind := range f.filter.kinds {
		for p := (&page{kind: kind, more: true}); p.more; {
			p = &page{kind: kind, after: p.after}
			if err := f.h.fill(ctx, p, f.filter.projectOf(kind), selector{}, statePage); err != nil {
				return err
			}
			if err := f.page(p); err != nil {
				return err
			}
		}
	}
	if err := f.frame(trivet.WatchSynced, f.watcher.Revision(), []byte("{}")); err != nil {
		return err
	}
	return f.flush()
}

// page sends a page of the current state.
func (f *feed) page(p *page) error {
	if p.cold > 0 {
		giveBack := f.h.unsent.take(f.r, p.cold)
		if giveBack == nil {
			return errUnsent("watch")
		}
		defer giveBack()
	}
	for _, raw := range p.records {
		if !f.filter.matches(raw.Record()) {
			continue
		}
		if err := f.frame(trivet.WatchPut, 0, shown(p.kind, raw.JSON())); err != nil {
			return err
		}
	}
	return nil
}

// run sends changes until the client disconnects or the head stops. An error before the first event is an ordinary
// response.
func (f *feed) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(f.h.stopping, stop)()
	for ended := false; !ended; {
		wait, cancel := context.WithTimeout(ctx, f.timeout())
		events, err := f.watcher.Next(wait)
		cancel()
		ended = ctx.Err() != nil
		if refused := f.h.current(f.c); refused != nil && f.opened {
			return f.fail(refused)
		}
		switch {
		case len(events) > 0: // sent in any case: the watcher, from where the client continues, is past them
		case ended:
			continue
		case errors.Is(err, context.DeadlineExceeded):
			if f.opened && f.isCutOff(ctx) {
				return f.end()
			}
			err = f.frame(trivet.WatchBookmark, f.watcher.Revision(), []byte("{}"))
		case err != nil && !f.opened:
			return err
		case err != nil:
			return f.fail(err)
		}
		if !f.opened {
			f.open()
		}
		if err = errors.Join(err, f.changes(events), f.flush()); err != nil {
			return unreadOnly(err)
		}
	}
	return f.end()
}

// changes sends changes. Where there is no space for all of them while a slow client receives them, it sends the first
// ones, and the watch goes on in small parts.
func (f *feed) changes(events []*store.Event) error {
	giveBack := f.h.unsent.take(f.r, store.EventBytes(events))
	if giveBack == nil {
		events = firstRevisions(events, batchBytes)
		f.watcher.Rewind(events[len(events)-1].Revision, batchBytes)
	} else {
		defer giveBack()
	}
	for _, e := range events {
		if err := f.event(e); err != nil {
			return err
		}
	}
	return nil
}

// firstRevisions returns the first events, in whole revisions and at least one: so many that they use about as many
// bytes.
func firstRevisions(events []*store.Event, bytes int) []*store.Event {
	used := 0
	for i, e := range events {
		if used >= bytes && e.Revision != events[i-1].Revision {
			return slices.Clone(events[:i]) // the others are not held
		}
		used += e.Bytes()
	}
	return events
}

// unreadOnly is for an error of a write: a client that has disconnected is none.
func unreadOnly(err error) error {
	if errors.Is(err, errUnread) {
		return errUnread
	}
	return nil
}

// isCutOff counts a heartbeat without a leader. A client that finds no better head may watch this one again.
func (f *feed) isCutOff(ctx context.Context) bool {
	if f.cutOff++; f.h.Ready(ctx) == nil {
		f.cutOff = 0
	}
	return f.cutOff >= watchCutOff
}

// timeout bounds the wait for changes: 0 before the response has begun.
func (f *feed) timeout() time.Duration {
	if !f.opened {
		return 0
	}
	return watchHeartbeat
}

// event sends one change. A record that no longer matches is deleted for this client.
func (f *feed) event(e *store.Event) error {
	if now := e.Record(); f.filter.matches(now) {
		return f.frame(trivet.WatchPut, e.Revision, shown(e.Kind, e.JSON()))
	}
	if !f.filter.matches(e.Old()) {
		return nil
	}
	old := e.Old().Header()
	data, err := json.Marshal(trivet.DeletedRecord{Kind: e.Kind, Project: old.Project, Name: old.Name})
	if err != nil {
		return err
	}
	return f.frame(trivet.WatchDelete, e.Revision, data)
}

// fail ends a watch that has begun with an error.
func (f *feed) fail(err error) error {
	_, p := apitypes.NewProblem(err)
	data, jsonErr := json.Marshal(p)
	if jsonErr != nil {
		return jsonErr
	}
	return unreadOnly(errors.Join(err, f.frame(trivet.WatchError, 0, data), f.flush()))
}

// end ends the watch; the client continues at another head.
func (f *feed) end() error {
	if !f.opened {
		return fmt.Errorf("watch: %w: this head is about to stop", trivet.ErrUnavailable)
	}
	_ = errors.Join(f.frame(trivet.WatchDrain, f.watcher.Revision(), []byte("{}")), f.flush())
	return nil
}
