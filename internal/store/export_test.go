package store

import (
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Seed switches a bug on, before the store is started.
func (s *Store) Seed(bug string) {
	switch bug {
	case "noCompare":
		s.defects.noCompare = true
	case "forgetID":
		s.defects.forgetID = true
	case "lose":
		s.defects.lose = loseSome()
	}
}

// loseSome leaves out the first changes of records after some others: two, since one alone may be of a write that nobody was
// told of.
func loseSome() func(*clientv3.Event) bool {
	const others, most = 30, 2
	var lost []int64
	return func(ev *clientv3.Event) bool {
		rev := ev.Kv.ModRevision
		if slices.Contains(lost, rev) {
			return true
		}
		if len(lost) == most || rev <= others || !strings.HasPrefix(string(ev.Kv.Key), prefix+"machine/") {
			return false
		}
		lost = append(lost, rev)
		return true
	}
}

// Held says how many events the history holds, and about how many bytes.
func (s *Store) Held() (events, bytes int) {
	s.history.mu.Lock()
	defer s.history.mu.Unlock()
	return len(s.history.events), s.history.bytes
}

// What it may hold at most.
const HistoryEvents, HistoryBytes = historyEvents, historyBytes
