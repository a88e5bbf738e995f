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

// setRevision tells with a request what was seen, and gives it.
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

// learn updates the session from a response. One that is older than requested, and served all the same, is of another
// history: the cluster was restored.
func (s *session) learn(resp *http.Response, asked int64) {
	told, err := strconv.ParseInt(resp.Header.Get(trivet.HeaderRevision), 10, 64)
	if err != nil || told < 1 {
		return
	}
	s.stale.Store(resp.Header.Get(trivet.HeaderStale) == "true")
	if told < asked && resp.StatusCode < http.StatusInternalServerError {
		s.revision.CompareAndSwap(asked, told)
		return
	}
	s.advance(told)
}

// acceptStale makes do with what heads know that cannot ask the others. It says whether that is news.
func (s *session) acceptStale() bool {
	return s.revision.Load() == 0 && s.fresh.Swap(false)
}

// advance notes a revision that was told.
func (s *session) advance(revision int64) {
	for seen := s.revision.Load(); seen < revision; seen = s.revision.Load() {
		if s.revision.CompareAndSwap(seen, revision) {
			return
		}
	}
}
