package client

import (
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/trivet-project/trivet"
)

// session is the revision that a client carries from head to head, so that it always reads what it has read or
// written.
type session struct {
	fresh    atomic.Bool // request the latest revision first
	revision atomic.Int64
	stale    atomic.Bool
}

// setRevision adds the last seen revision to a request, and returns it.
func (s *session) setRevision(req *http.Request) (seen int64) {
	seen = s.revision.Load()
	switch {
	case seen > 0:
		req.Header.Set(trivet.HeaderRevision, strconv.FormatInt(seen, 10))
	case s.fresh.Load():
		req.Header.Set(trivet.HeaderRevision, trivet.RevisionLatest)
	}
	return seen
}

// learn updates the session from a response that was served. One that is older than requested is of another history:
// the cluster was restored.
func (s *session) learn(resp *http.Response, asked int64) {
	got, err := strconv.ParseInt(resp.Header.Get(trivet.HeaderRevision), 10, 64)
	if err != nil || got < 1 || resp.StatusCode >= http.StatusInternalServerError {
		return // a head that could not serve did not reach what was asked for
	}
	s.stale.Store(resp.Header.Get(trivet.HeaderStale) == "true")
	if got < asked {
		s.revision.CompareAndSwap(asked, got)
		return
	}
	s.advance(got)
}

// acceptStale accepts responses of heads that cannot reach the others. It reports whether that is a change.
func (s *session) acceptStale() bool {
	return s.revision.Load() == 0 && s.fresh.Swap(false)
}

// advance records a revision that was received.
func (s *session) advance(revision int64) {
	for seen := s.revision.Load(); seen < revision; seen = s.revision.Load() {
		if s.revision.CompareAndSwap(seen, revision) {
			return
		}
	}
}
