package store

import (
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Seed enables a bug, before the store is started.
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

// loseSome drops two changes of records after some others. One would not be enough: it may be of a write that was not
// acknowledged.
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

// Sealed returns the stored value of a new key.
func (s *Store) Sealed(key, doc string) string {
	sealed, err := s.seal(s.opts.Cipher.First(), key, nil, &value{doc: []byte(doc)})
	if err != nil {
		panic(err)
	}
	return sealed
}

// Held returns how many events the history holds, and their approximate size in bytes.
func (s *Store) Held() (events, bytes int) {
	s.history.mu.Lock()
	defer s.history.mu.Unlock()
	return len(s.history.events), s.history.bytes
}

// The limits of the history.
const HistoryEvents, HistoryBytes = historyEvents, historyBytes

// MaxWaitingBytes bounds what the transactions write that wait for a group.
const MaxWaitingBytes = maxWaitingBytes

// Waiting returns how many transactions wait to begin.
func (s *Store) Waiting() float64 {
	var m dto.Metric
	if err := s.metrics.waiting.Write(&m); err != nil {
		panic(err)
	}
	return m.GetGauge().GetValue()
}

// Guard returns the revision of the guard that the copy has.
func (s *Store) Guard() int64 { return s.guard() }

// LimitBytes sets how many bytes the transactions may write that wait.
func (g *Group) LimitBytes(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.maxBytes = n
}

// Waiting returns how many transactions wait for the next group.
func (g *Group) Waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiting)
}

// LimitReplay sets the limits of replays.
func (s *Store) LimitReplay(revisions, bytes int64) {
	s.replay = replayLimit{revisions, maxUnknownReplay, bytes}
}

// LimitUnknown sets the limit of replays in revisions that are older than the copy.
func (s *Store) LimitUnknown(revisions int64) { s.replay.unknown = revisions }

// ForgetHistory drops the events that this head holds, so that watches read from etcd.
func (s *Store) ForgetHistory() { s.history.reset(s.Revision()) }

// MaxReplays bounds the watchers that read from etcd at the same time.
const MaxReplays = maxReplays

// StayDecoded sets how many records at rest stay decoded, before the store is started.
func (t *Table[T]) StayDecoded(most int) { t.info.awake.last = make([]*entry, most) }

// Decoded returns the full names of the records at rest of the copy that are decoded, with their specs.
func (s *Store) Decoded() (names []string) {
	for e := range s.snapshot().under(prefix, "") {
		if e.resting && (e.getDecoded() != nil || e.spec != nil && e.spec.getDecoded() != nil) {
			names = append(names, e.name)
		}
	}
	return names
}
