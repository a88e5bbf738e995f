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
	h.add(route{method: "GET", path: "/v1/workflows/{name}/logs", verb: auth.Read, kind: "Workflow",
		summary: "Read what the actions of a workflow wrote, one JSON object a line; one without an action is the end",
		query:   []string{"action: of this action only", "follow: 1 goes on until the workflow has ended"},
		out:     reflect.TypeFor[trivet.LogPiece](), outputs: "application/x-ndjson", serve: h.logs})
}

// maxPiece bounds the text of one piece, in bytes.
const maxPiece = 32 << 10

func (h *Handler) logs(w http.ResponseWriter, r *http.Request, _ *caller) error {
	workflow := r.PathValue("name")
	run, err := h.Fleet.Workflows.GetShared(workflow)
	if err != nil {
		return err
	}
	leave, err := h.enterFeed()
	if err != nil {
		return err
	}
	defer leave()
	w.Header().Set("Content-Type", "application/x-ndjson")
	f := &logFeed{view: h.Logs.View(run), w: w, run: run, action: r.URL.Query().Get("action"), told: map[runlog.Part]int64{}}
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
		grew, last := h.Logs.Store.Changed(), isClosed(ended) // asked before reading: what was written until then is read
		if err := f.tell(r.Context(), last); err != nil {
			return nil // the answer has begun: all that is left is to cut it
		}
		if last {
			return f.line(trivet.LogPiece{})
		}
		http.NewResponseController(w).Flush()
		select {
		case <-grew:
		case <-time.After(replica.LogPollInterval): // other heads' logs grow, too
		case <-ended:
		case <-h.drain:
			return nil
		case <-r.Context().Done():
			return nil
		}
	}
}

// awaitEnd closes ended when the workflow has ended or is gone.
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

// logFeed sends what one reader has not been told yet.
type logFeed struct {
	view   *replica.LogView
	w      http.ResponseWriter
	run    *trivet.Workflow
	action string                // only this one; empty: all
	told   map[runlog.Part]int64 // by action and try: up to which offset
	silent []string              // the heads that were told to be so
}

// tell sends what is new. The last time it is all that was acknowledged by now, so far as heads can be asked.
func (f *logFeed) tell(ctx context.Context, last bool) error {
	if err := f.view.Refresh(ctx, last); err != nil {
		return err
	}
	if err := f.mark(); err != nil {
		return err
	}
	parts := f.view.Parts()
	slices.SortFunc(parts, func(a, b runlog.Part) int {
		return cmp.Or(f.place(a.Action)-f.place(b.Action), a.Attempt-b.Attempt)
	})
	for _, p := range parts {
		key := runlog.Part{Action: p.Action, Attempt: p.Attempt}
		if f.action != "" && p.Action != f.action || p.Bytes <= f.told[key] {
			continue
		}
		if err := f.part(ctx, key); err != nil {
			return err
		}
	}
	return f.mark() // one may have fallen silent while it was read from
}

// mark says which heads cannot be asked, when that has changed.
func (f *logFeed) mark() error {
	silent := f.view.Unreachable()
	if slices.Equal(silent, f.silent) {
		return nil
	}
	f.silent = silent
	return f.line(trivet.LogPiece{Action: trivet.LogMark, Missing: silent})
}

func (f *logFeed) place(action string) int {
	return slices.IndexFunc(f.run.Spec.Actions, func(a trivet.Action) bool { return a.Name == action })
}

// part sends the rest of one part in pieces.
func (f *logFeed) part(ctx context.Context, p runlog.Part) error {
	at, buf := f.told[p], make([]byte, replica.LogChunkBytes)
	pieces := &pieceWriter{feed: f, part: p, at: at}
	for {
		n, err := f.view.Read(ctx, p, at, buf)
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
	f.told[p] = at
	return pieces.flush(at)
}

func (f *logFeed) line(p trivet.LogPiece) error {
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	_ = http.NewResponseController(f.w).SetWriteDeadline(time.Now().Add(feedPatience))
	_, err = f.w.Write(append(data, '\n'))
	return err
}

// pieceWriter cuts a log between characters. Holes are left out of the text, so a piece's offsets tell where it is
// from, not how long it is.
type pieceWriter struct {
	feed *logFeed
	part runlog.Part
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
	p := trivet.LogPiece{Action: w.part.Action, Attempt: w.part.Attempt, Offset: w.at, Next: next, Text: w.text.String()}
	w.at = next
	w.text.Reset()
	return w.feed.line(p)
}
