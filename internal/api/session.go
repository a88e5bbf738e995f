package api

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
)

// No head keeps a session. So that a client sees what it has seen or written at another head, it carries the revision of
// that, and a head that is behind waits until its copy has it, or lets another one be asked.

const (
	// reachTime is how long a head that is behind is waited for. It is milliseconds behind, or cut off.
	reachTime = time.Second
	// maxFresh bounds how many at a time ask the cluster what is the latest, since they are not all known to be friends.
	maxFresh = 64
)

// reach waits until this head can answer a request no older than its sender wants, and tells with the answer how new it is.
func (h *Handler) reach(w *recorder, r *http.Request) error {
	w.head = func() {
		w.Header().Set(trivet.HeaderRevision, strconv.FormatInt(h.Fleet.Store.Revision(), 10))
	}
	switch want := r.Header.Get(trivet.HeaderRevision); want {
	case "":
	case trivet.RevisionLatest:
		return h.fresh(r.Context())
	default:
		revision, err := strconv.ParseInt(want, 10, 64)
		if err != nil || revision < 0 {
			return &trivet.FieldError{Field: trivet.HeaderRevision, Problem: "must be a revision"}
		}
		if _, err = h.catchUp(r.Context(), revision); err != nil {
			return err
		}
	}
	if r.Method == http.MethodGet && h.Ready(r.Context()) != nil && h.fresh(r.Context()) != nil {
		w.Header().Set(trivet.HeaderStale, "true")
	}
	return nil
}

// catchUp waits until this head's copy has a revision. It says that there is none where the whole cluster has not reached it:
// that one is of another history, from before a restore.
func (h *Handler) catchUp(ctx context.Context, revision int64) (there bool, err error) {
	if revision <= h.Fleet.Store.Revision() {
		return true, nil
	}
	reach, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	if h.Fleet.Store.WaitRevision(reach, revision) == nil {
		return true, nil
	}
	if err := h.fresh(ctx); err != nil {
		return false, fmt.Errorf("revision %d: %w: this head is at %d: %w", revision, trivet.ErrUnavailable, h.Fleet.Store.Revision(), err)
	}
	return revision <= h.Fleet.Store.Revision(), nil
}

// fresh waits until this head's copy has all that was acknowledged before.
func (h *Handler) fresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	select {
	case h.freshening <- struct{}{}:
		defer func() { <-h.freshening }()
		return h.Fleet.Store.Sync(ctx)
	case <-ctx.Done():
		return fmt.Errorf("read afresh: %w: %w", trivet.ErrUnavailable, ctx.Err())
	}
}

// tellHeads tells a caller who has proved itself where all heads are.
func (h *Handler) tellHeads(w http.ResponseWriter) {
	if urls, _ := h.Fleet.HeadURLs(nil); len(urls) > 0 {
		w.Header().Set(trivet.HeaderHeads, strings.Join(urls, ","))
	}
}
