package store_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// Every update is one record of about 300 bytes, with fsync on.
func BenchmarkUpdate(b *testing.B) {
	for _, callers := range []int{1, 64, 256} {
		b.Run(fmt.Sprint("callers=", callers), func(b *testing.B) {
			h := open(b, storetest.Member(b).Client(), store.Options{})
			for i := range callers {
				h.must(b, func(tx *store.Tx) error {
					return h.machines.In(tx).Create(machine(fmt.Sprint("m", i), "r1"))
				})
			}
			var next atomic.Int64
			var wg sync.WaitGroup
			b.ReportAllocs()
			b.ResetTimer()
			for i := range callers {
				wg.Go(func() {
					for next.Add(1) <= int64(b.N) {
						h.must(b, func(tx *store.Tx) error { return h.count(tx, fmt.Sprint("m", i)) })
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "updates/s")
		})
	}
}

func (h *head) count(tx *store.Tx, name string) error {
	m, err := h.machines.In(tx).Get(name)
	if err != nil {
		return err
	}
	m.Status.Epoch++
	return h.machines.In(tx).Put(m)
}

func filled(b *testing.B, n int) *head {
	h := open(b, storetest.Member(b).Client(), store.Options{})
	const each = 100
	for i := 0; i < n; i += each {
		h.must(b, func(tx *store.Tx) error {
			for j := i; j < i+each; j++ {
				m := machine(fmt.Sprint("m", j), "r1")
				m.Spec.NICs = []trivet.NIC{{MAC: mac(j)}}
				if err := h.machines.In(tx).Create(m); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return h
}

func mac(i int) string { return fmt.Sprintf("52:54:00:%02x:%02x:%02x", i>>16, i>>8&255, i&255) }

func BenchmarkRead(b *testing.B) {
	const n = 10_000
	h := filled(b, n)
	for name, read := range map[string]func(i int) bool{
		"get": func(i int) bool { m, err := h.machines.Get(fmt.Sprint("m", i)); return err == nil && m != nil },
		"shared": func(i int) bool {
			m, err := h.machines.GetShared(fmt.Sprint("m", i))
			return err == nil && m != nil
		},
		"by":     func(i int) bool { return len(h.machines.ListBy("mac", mac(i))) == 1 },
		"peekby": func(i int) bool { return len(h.machines.SharedBy("mac", mac(i))) == 1 },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				if !read(i % n) {
					b.Fatal("not found")
				}
			}
		})
	}
}

// One writer, 300 watchers of all kinds: what one event costs until all have it.
func BenchmarkFanOut(b *testing.B) {
	const watchers = 300
	h := filled(b, 100)
	var wg sync.WaitGroup
	from := h.Revision()
	b.ResetTimer()
	for range watchers {
		wg.Go(func() {
			w := h.Watch(from)
			for seen := 0; seen < b.N; {
				events, err := w.Next(b.Context())
				if err != nil {
					b.Error(err)
					return
				}
				seen += len(events)
			}
		})
	}
	for range b.N {
		h.must(b, func(tx *store.Tx) error { return h.count(tx, "m1") })
	}
	wg.Wait()
	b.ReportMetric(watchers*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
