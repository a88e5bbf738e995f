package client

import (
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/trivet-project/trivet"
)

// session is what a client carries from head to head, so that it never sees less than it has seen or written.
type session struct {
	fresh    atomic.Bool // before anything was seen, ask for the latest
	revision atomic.Int64
	stale    atomic.Bool
}

// sign tells with a request what was seen, and gives it.
func (s *session) sign(req *http.Request) (seen int64) {
	seen = s.revision.Load()
	switch {
	case seen > 0:
		req.Header.Set(trivet.HeaderRevision, strconv.FormatInt(seen, 10))
	case s.fresh.Load():
		req.Header.Set(trivet.HeaderRevision, trivet.RevisionLatest)
	}
	return seen
}

// learn takes what an answer says. One that is older than was asked for, and served all the same, is of another history:
// the cluster was restored.
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
	s.saw(told)
}

// settle makes do with what heads know that cannot ask the others. It says whether that is news.
func (s *session) settle() bool {
	return s.revision.Load() == 0 && s.fresh.Swap(false)
}

// saw notes a revision that was told.
func (s *session) saw(revision int64) {
	for seen := s.revision.Load(); seen < revision; seen = s.revision.Load() {
		if s.revision.CompareAndSwap(seen, revision) {
			return
		}
	}
}
