package api

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/limit"
)

// No head keeps a session. To read what it has read or written at another head, a client sends the revision of
// that, and a head that is behind waits until its copy has it, or refuses the request.

const (
	// reachTime bounds the wait of a head that is behind. It is milliseconds behind, or cut off.
	reachTime = time.Second
	// maxFresh bounds the concurrent reads of the latest revision from the cluster.
	maxFresh = 64
	// maxUnknownFresh and maxAddressFresh bound those of callers that are not recognised, in total and of one address.
	maxUnknownFresh, maxAddressFresh = maxFresh / 2, 8
	// maxAge is how old a response may be that is not marked as stale.
	maxAge = 2 * time.Second
)

// reach waits until this head has the revision that a request asks for, and adds its own to the response. A response
// to a request that fails here has none: it does not have what the client asked for.
func (h *Handler) reach(w *recorder, r *http.Request) error {
	if err := h.reachRevision(r); err != nil {
		return err
	}
	if r.Method == http.MethodGet {
		h.confirm(r.Context())
	}
	w.head = func() {
		w.Header().Set(trivet.HeaderRevision, strconv.FormatInt(h.Fleet.Store.Revision(), 10))
		if r.Method == http.MethodGet && h.confirmed.age() > maxAge {
			w.Header().Set(trivet.HeaderStale, "true")
		}
	}
	return nil
}

// reachRevision waits until this head has the revision that a request asks for.
func (h *Handler) reachRevision(r *http.Request) error {
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
	return nil
}

// confirmed knows when this head's copy was last confirmed by a quorum. A head is behind without noticing: after it
// was stopped, or cut off, it has a leader before it has what the others wrote meanwhile.
type confirmed struct {
	at    atomic.Pointer[time.Time] // the copy has all that was acknowledged before; nil: never
	calls singleflight.Group
}

// age returns how old the copy may be, by the monotonic clock.
func (c *confirmed) age() time.Duration {
	if at := c.at.Load(); at != nil {
		return time.Since(*at)
	}
	return math.MaxInt64
}

func (c *confirmed) set(at time.Time) {
	for old := c.at.Load(); old == nil || old.Before(at); old = c.at.Load() {
		if c.at.CompareAndSwap(old, &at) {
			return
		}
	}
}

// confirm confirms that this head's copy is current, unless that was done a moment ago. All requests share one call.
func (h *Handler) confirm(ctx context.Context) {
	if h.confirmed.age() < maxAge/2 {
		return
	}
	_, _, _ = h.confirmed.calls.Do("", func() (any, error) { // its failure shows in the age
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reachTime)
		defer cancel()
		return nil, h.syncStore(ctx)
	})
}

// syncStore waits until this head's copy has all that was acknowledged before the call.
func (h *Handler) syncStore(ctx context.Context) error {
	began := time.Now()
	err := h.Fleet.Store.Sync(ctx)
	if err == nil {
		h.confirmed.set(began)
	}
	return err
}

// catchUp waits until this head's copy has a revision. It reports false if the whole cluster has not reached it:
// it is then of another history, from before a restore.
func (h *Handler) catchUp(ctx context.Context, revision int64) (reached bool, err error) {
	if revision <= h.Fleet.Store.Revision() {
		return true, nil
	}
	reach, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	if h.Fleet.Store.WaitRevision(reach, revision) == nil {
		return true, nil
	}
	if err := h.fresh(ctx); err != nil {
		return false, fmt.Errorf("revision %d: %w: this head is at %d: %w", revision, trivet.ErrUnavailable,
			h.Fleet.Store.Revision(), err)
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
		return h.syncStore(ctx)
	case <-ctx.Done():
		return fmt.Errorf("read the latest revision: %w: %w", trivet.ErrUnavailable, ctx.Err())
	}
}

// reachForUnknown is reach for a caller that is not recognised.
func (h *Handler) reachForUnknown(w *recorder, r *http.Request) error {
	return h.asUnknown(r, func() error { return h.reach(w, r) })
}

// freshForUnknown is fresh for one: its credential may be newer than this head's copy.
func (h *Handler) freshForUnknown(r *http.Request) error {
	return h.asUnknown(r, func() error { return h.fresh(r.Context()) })
}

// asUnknown calls a function that may wait for the cluster, for few callers that are not recognised at the same time.
func (h *Handler) asUnknown(r *http.Request, do func() error) error {
	giveBack := h.unknownFresh.Take(limit.Of(r.Context()).Address(), 1)
	if giveBack == nil {
		return fmt.Errorf("%w: too many requests of callers that this head does not know", trivet.ErrUnavailable)
	}
	defer giveBack()
	return do()
}

// setHeads adds the URLs of all heads and the pins of the CAs to the response for an authenticated caller.
func (h *Handler) setHeads(w http.ResponseWriter) {
	if urls, _ := h.Fleet.HeadURLs(nil); len(urls) > 0 {
		w.Header().Set(trivet.HeaderHeads, strings.Join(urls, ","))
	}
	w.Header().Set(trivet.HeaderTrust, h.trust)
}
