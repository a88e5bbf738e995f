package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/replica"
	"github.com/trivet-project/trivet/internal/runlog"
)

func (h *Handler) logRoutes() {
	h.add(route{method: "GET", path: inProject + "workflows/{name}/logs", verb: auth.Read, kind: "Workflow",
		summary: "Read the logs of a workflow's actions, one JSON object per line; one without an action is the end",
		query: []string{"action: of this action only", "follow: 1 goes on until the workflow has ended",
			"all: 1 includes what was repeated after a reset of the machine, which is the logs of earlier epochs"},
		out: reflect.TypeFor[trivet.LogPiece](), outputs: "application/x-ndjson", serve: h.logs})
}

// maxPiece bounds the text of one piece, in bytes.
const maxPiece = 32 << 10

func (h *Handler) logs(w http.ResponseWriter, r *http.Request, c *caller) error {
	workflow, err := fullName(r)
	if err != nil {
		return err
	}
	run, err := h.Fleet.Workflows.Find(r.Context(), workflow)
	if err != nil {
		return err
	}
	leave, err := h.enterWatch(r)
	if err != nil {
		return err
	}
	defer leave()
	w.Header().Set("Content-Type", "application/x-ndjson")
	f := &logFeed{
		view: h.Logs.View(run), w: w, run: run, action: r.URL.Query().Get("action"),
		all: r.URL.Query().Get("all") != "", sent: map[trivet.LogKey]int64{},
	}
	follow := r.URL.Query().Get("follow") != ""
	ended := make(chan struct{})
	if follow {
		ctx, stop := context.WithCancel(r.Context())
		var waiting sync.WaitGroup
		waiting.Go(func() { h.awaitEnd(ctx, workflow, ended) })
		defer waiting.Wait()
		defer stop()
	} else {
		close(ended)
	}
	for {
		grew, last := h.Logs.Store.Changed(), isClosed(ended) // before reading: what was written until then is read
		if h.current(c) != nil {
			return nil // the client learns why when it continues
		}
		if err := f.send(r.Context(), last); err != nil {
			return nil // the response has begun, so it can only be cut off
		}
		if last {
			return f.line(trivet.LogPiece{})
		}
		http.NewResponseController(w).Flush()
		select {
		case <-grew:
		case <-time.After(replica.LogPollInterval): // the logs at other heads grow, too
		case <-ended:
		case <-h.drain:
			return nil
		case <-r.Context().Done():
			return nil
		}
	}
}

// awaitEnd closes ended when the workflow has ended, as all have that are not in the copy, or is gone.
func (h *Handler) awaitEnd(ctx context.Context, workflow string, ended chan<- struct{}) {
	feed := h.Fleet.Store.Watch(0, "Workflow")
	for {
		f, err := h.Fleet.Workflows.GetShared(workflow)
		if err != nil || f.Status.State.Ended() {
			close(ended)
			return
		}
		_, err = feed.Next(ctx)
		switch {
		case errors.Is(err, trivet.ErrCompacted):
			feed = h.Fleet.Store.Watch(0, "Workflow")
		case err != nil:
			return
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// logFeed sends the logs of a workflow to one client.
type logFeed struct {
	view   *replica.LogView
	w      http.ResponseWriter
	run    *trivet.Workflow
	action string                  // only this one; empty: all
	all    bool                    // also of earlier epochs
	sent   map[trivet.LogKey]int64 // offset sent so far
	silent []string                // the unreachable heads that the client knows of
}

// send sends what is new. The last call sends all that was acknowledged, as far as heads are reachable.
func (f *logFeed) send(ctx context.Context, last bool) error {
	if err := f.view.Refresh(ctx, last); err != nil {
		return err
	}
	if err := f.mark(); err != nil {
		return err
	}
	for _, p := range f.parts() {
		if p.Bytes <= f.sent[p.LogKey] {
			continue
		}
		if err := f.part(ctx, p.LogKey); err != nil {
			return err
		}
	}
	return f.mark() // a head may have become unreachable during the read
}

// parts returns the parts that the client asks for, in order.
func (f *logFeed) parts() []runlog.Part {
	parts := f.view.Parts()
	latest := map[string]int64{} // epoch by action
	for _, p := range parts {
		latest[p.Action] = max(latest[p.Action], p.Epoch)
	}
	parts = slices.DeleteFunc(parts, func(p runlog.Part) bool {
		return f.action != "" && p.Action != f.action || !f.all && p.Epoch < latest[p.Action]
	})
	slices.SortFunc(parts, func(a, b runlog.Part) int {
		return cmp.Or(f.place(a.Action)-f.place(b.Action), cmp.Compare(a.Epoch, b.Epoch), a.Attempt-b.Attempt)
	})
	return parts
}

// mark sends the list of unreachable heads when it has changed.
func (f *logFeed) mark() error {
	silent := f.view.Unreachable()
	if slices.Equal(silent, f.silent) {
		return nil
	}
	f.silent = silent
	return f.line(trivet.LogPiece{LogKey: trivet.LogKey{Action: trivet.LogMark}, Missing: silent})
}

// place returns where the log of an action comes; that of the console is last.
func (f *logFeed) place(action string) int {
	if action == trivet.LogConsole {
		return len(f.run.Spec.Actions)
	}
	return slices.IndexFunc(f.run.Spec.Actions, func(a trivet.Action) bool { return a.Name == action })
}

// part sends the rest of one part in pieces.
func (f *logFeed) part(ctx context.Context, key trivet.LogKey) error {
	at, buf := f.sent[key], make([]byte, replica.LogChunkBytes)
	pieces := &pieceWriter{feed: f, key: key, at: at}
	for {
		n, err := f.view.Read(ctx, key, at, buf)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		at += int64(n)
		if err := pieces.write(buf[:n]); err != nil {
			return err
		}
	}
	f.sent[key] = at
	return pieces.flush(at)
}

func (f *logFeed) line(p trivet.LogPiece) error {
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	_ = http.NewResponseController(f.w).SetWriteDeadline(time.Now().Add(writeTimeout))
	_, err = f.w.Write(append(data, '\n'))
	return err
}

// pieceWriter splits a log between characters. Holes are left out of the text, so a piece's offsets are its place in
// the log and not its length.
type pieceWriter struct {
	feed *logFeed
	key  trivet.LogKey
	at   int64
	text bytes.Buffer
}

func (w *pieceWriter) write(b []byte) error {
	for _, c := range b {
		if c == 0 {
			continue
		}
		if w.text.Len() >= maxPiece && utf8.RuneStart(c) {
			if err := w.flush(w.at + int64(w.text.Len())); err != nil {
				return err
			}
		}
		w.text.WriteByte(c)
	}
	return nil
}

func (w *pieceWriter) flush(next int64) error {
	if w.text.Len() == 0 {
		return nil
	}
	p := trivet.LogPiece{LogKey: w.key, Offset: w.at, Next: next, Text: w.text.String()}
	w.at = next
	w.text.Reset()
	return w.feed.line(p)
}
