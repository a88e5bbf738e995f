package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/store"
)

const (
	// feedBeat is how often a feed without news says that the head is there.
	feedBeat = 5 * time.Second
	// feedCutOff is after how many quiet beats a feed ends whose head has no leader: it hears no news, and another may.
	feedCutOff = 2
	// feedPatience is how long a client may not read before its feed or answer is cut.
	feedPatience = 30 * time.Second
)

// feedFilter chooses the records of a feed.
type feedFilter struct {
	kinds []trivet.Kind
	names map[string]bool // nil: all
	sel   selector
}

func (f *feedFilter) takes(r trivet.Record) bool {
	return r != nil && (f.names == nil || f.names[r.Header().Name]) && f.sel.matches(r)
}

// watch follows records. It is resumed from a revision, at this head or another; nothing is kept of it.
func (h *Handler) watch(w http.ResponseWriter, r *http.Request, c *caller) error {
	filter, from, err := parseWatch(r)
	if err != nil {
		return err
	}
	if err := filter.authorize(c.role); err != nil {
		return err
	}
	leave, err := h.enterFeed()
	if err != nil {
		return err
	}
	defer leave()
	if there, err := h.catchUp(r.Context(), from); err != nil {
		return err
	} else if !there {
		return fmt.Errorf("watch from revision %d: %w: the cluster is at %d", from, trivet.ErrCompacted, h.Fleet.Store.Revision())
	}
	f := &feed{h: h, w: w, out: http.NewResponseController(w), filter: filter}
	f.watcher = h.Fleet.Store.Watch(max(from, 0), filter.kinds...)
	if from == 0 {
		f.open()
		if err := f.state(); err != nil {
			return nil // the client is gone
		}
	}
	return f.run(r.Context())
}

// authorize checks that the role may read the kinds. If none is given, it selects those that it may read.
func (f *feedFilter) authorize(role trivet.AccountRole) error {
	if f.kinds != nil {
		for _, kind := range f.kinds {
			if err := auth.Allow(role, auth.Read, kind); err != nil {
				return err
			}
		}
		return nil
	}
	for _, info := range trivet.Kinds {
		if auth.Allow(role, auth.Read, info.Kind) == nil {
			f.kinds = append(f.kinds, info.Kind)
		}
	}
	return nil
}

func parseWatch(r *http.Request) (f *feedFilter, from int64, err error) {
	q := r.URL.Query()
	f = &feedFilter{}
	for name := range strings.SplitSeq(q.Get("kinds"), ",") {
		if name == "" {
			continue
		}
		info, err := trivet.LookupKind(name)
		if err != nil {
			return nil, 0, err
		}
		f.kinds = append(f.kinds, info.Kind)
	}
	for name := range strings.SplitSeq(q.Get("names"), ",") {
		if name == "" {
			continue
		}
		if f.names == nil {
			f.names = map[string]bool{}
		}
		f.names[name] = true
	}
	if f.sel.labels, err = parseSelector("labels", q.Get("labels")); err != nil {
		return nil, 0, err
	}
	text := q.Get("from")
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		text = id
	}
	if text != "" {
		if from, err = strconv.ParseInt(text, 10, 64); err != nil || from < 1 {
			return nil, 0, &trivet.FieldError{Field: "from", Problem: "must be a revision"}
		}
	}
	return f, from, nil
}

// feed is one open watch.
type feed struct {
	h       *Handler
	w       http.ResponseWriter
	out     *http.ResponseController
	filter  *feedFilter
	watcher *store.Watcher
	opened  bool
	cutOff  int // quiet beats in a row at which this head was cut off from the others
	buf     []byte
}

func (f *feed) open() {
	f.opened = true
	f.w.Header().Set("Content-Type", "text/event-stream")
	f.w.WriteHeader(http.StatusOK)
}

// flush sends what is buffered, to a client that reads.
func (f *feed) flush() error {
	if err := f.out.SetWriteDeadline(time.Now().Add(feedPatience)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	_, err := f.w.Write(f.buf)
	f.buf = f.buf[:0]
	return errors.Join(err, f.out.Flush())
}

func (f *feed) frame(event string, id int64, data []byte) error {
	f.buf = apitypes.AppendEvent(f.buf, event, id, data)
	if len(f.buf) > 64<<10 {
		return f.flush()
	}
	return nil
}

// state tells what is there. The watcher was made before, so that what changes meanwhile is told twice rather than never.
func (f *feed) state() error {
	for _, kind := range f.filter.kinds {
		for after, more := "", true; more; {
			records, _ := f.h.Fleet.Store.List(kind, after, maxPage)
			for _, raw := range records {
				after = raw.Name()
				if !f.filter.takes(raw.Record()) {
					continue
				}
				if err := f.frame(trivet.WatchPut, 0, shown(kind, raw.JSON())); err != nil {
					return err
				}
			}
			more = len(records) == maxPage
		}
	}
	if err := f.frame(trivet.WatchSynced, f.watcher.Revision(), []byte("{}")); err != nil {
		return err
	}
	return f.flush()
}

// run tells changes until the client or the head goes. An error before anything was told is an ordinary answer.
func (f *feed) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(f.h.stopping, stop)()
	for ended := false; !ended; {
		beat, cancel := context.WithTimeout(ctx, f.patience())
		events, err := f.watcher.Next(beat)
		cancel()
		ended = ctx.Err() != nil
		switch {
		case len(events) > 0: // told in any case: the watcher, from where the client goes on, is past them
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
		for _, e := range events {
			err = errors.Join(err, f.event(e))
		}
		if err = errors.Join(err, f.flush()); err != nil {
			return nil // the client is gone
		}
	}
	return f.end()
}

// isCutOff counts a quiet beat. A client that finds no better head may follow this one again.
func (f *feed) isCutOff(ctx context.Context) bool {
	if f.cutOff++; f.h.Ready(ctx) == nil {
		f.cutOff = 0
	}
	return f.cutOff >= feedCutOff
}

// patience is how long to wait for news: not at all before the answer has begun.
func (f *feed) patience() time.Duration {
	if !f.opened {
		return 0
	}
	return feedBeat
}

// event tells one change. A record that is no longer chosen is gone as far as this client is concerned.
func (f *feed) event(e *store.Event) error {
	if now := e.Record(); f.filter.takes(now) {
		return f.frame(trivet.WatchPut, e.Revision, shown(e.Kind, e.JSON()))
	}
	if !f.filter.takes(e.Old()) {
		return nil
	}
	data, err := json.Marshal(trivet.DeletedRecord{Kind: e.Kind, Name: e.Name})
	if err != nil {
		return err
	}
	return f.frame(trivet.WatchDelete, e.Revision, data)
}

// fail ends a feed that has begun with an error.
func (f *feed) fail(err error) error {
	_, p := apitypes.NewProblem(err)
	data, jsonErr := json.Marshal(p)
	if jsonErr != nil {
		return jsonErr
	}
	_ = errors.Join(f.frame(trivet.WatchError, 0, data), f.flush())
	return nil
}

// end tells a client that is still there to go on at another head.
func (f *feed) end() error {
	if !f.opened {
		return fmt.Errorf("follow: %w: this head is about to stop", trivet.ErrUnavailable)
	}
	_ = errors.Join(f.frame(trivet.WatchDrain, f.watcher.Revision(), []byte("{}")), f.flush())
	return nil
}
