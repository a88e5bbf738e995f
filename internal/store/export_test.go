package store

import (
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
		s.defects.lose = loseOne()
	}
}

// loseOne leaves out the first change of records after some others.
func loseOne() func(*clientv3.Event) bool {
	const others = 30
	lost := int64(0)
	return func(ev *clientv3.Event) bool {
		rev := ev.Kv.ModRevision
		if lost == 0 && rev > others && strings.HasPrefix(string(ev.Kv.Key), prefix+"machine/") {
			lost = rev
		}
		return rev == lost
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
