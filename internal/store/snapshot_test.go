package store

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/trivet-project/trivet"
)

// One change of one machine of 100,000, which keeps all its 12 index keys.
func BenchmarkApply(b *testing.B) {
	const n, keys = 100_000, 12
	info := &kindInfo{kind: "Machine", part: "machine"}
	for k := range keys {
		info.indexes = append(info.indexes, index{name: fmt.Sprint("i", k), keys: func(r trivet.Record) []string {
			return []string{fmt.Sprint(r.Header().UID, k)}
		}})
	}
	entryOf := func(i int) *entry {
		name := fmt.Sprintf("machine%06d", i)
		rec := &trivet.Machine{Meta: trivet.Meta{Name: name, UID: fmt.Sprint("uid", i*7919%n)}}
		return &entry{key: recordKey("machine", name), kind: "machine", name: name, info: info, rec: rec}
	}
	s := newSnapshot(1)
	for i := range n {
		s.put(entryOf(i))
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		s = s.next()
		s.put(entryOf(i * 31 % n))
	}
}

// Whatever changes, each list of an index has the records that have its key, as they are now.
func TestListsFollowRecords(t *testing.T) {
	t.Parallel()
	labels := index{name: "labels", keys: func(r trivet.Record) (keys []string) {
		for key := range r.Header().Labels {
			keys = append(keys, key)
		}
		return keys
	}}
	info := &kindInfo{kind: "Machine", part: "machine", indexes: []index{labels}}
	s, now := newSnapshot(0), map[string]*entry{}
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		name := fmt.Sprint("m", random.IntN(20))
		rec := &trivet.Machine{Meta: trivet.Meta{Name: name, Labels: map[string]string{}}}
		for key := range 4 {
			if random.IntN(2) == 0 {
				rec.Labels[fmt.Sprint("l", key)] = ""
			}
		}
		e := &entry{key: recordKey("machine", name), kind: "machine", name: name, info: info, rec: rec}
		before := s
		s = s.next()
		if random.IntN(4) == 0 {
			s.del(e.key)
			delete(now, name)
		} else {
			s.put(e)
			now[name] = e
		}
		checkLists(t, s, info, now)
		if got := before.get(e.key); got == e {
			t.Fatal("an older snapshot has a newer record")
		}
	}
}

func checkLists(t *testing.T, s *snapshot, info *kindInfo, now map[string]*entry) {
	t.Helper()
	for key := range 4 {
		label := fmt.Sprint("l", key)
		var want []string
		for name, e := range now {
			if _, ok := e.rec.Header().Labels[label]; ok {
				want = append(want, name)
			}
		}
		slices.Sort(want)
		var got []string
		for e := range s.listed(info, info.indexes[0], label) {
			if e != now[e.name] {
				t.Fatalf("the list %s has another version of %s", label, e.name)
			}
			got = append(got, e.name)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("the list %s has %v; want %v", label, got, want)
		}
	}
}
