package addressing_test

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/addressing"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// Every lease is an unknown client's first one: an offer, and a record that is written and synced. The processor time
// is that of the whole process, with etcd.
func BenchmarkNewLeases(b *testing.B) {
	for _, clients := range []int{1, 16, 64} {
		b.Run(fmt.Sprint("clients=", clients), func(b *testing.B) { newLeases(b, clients) })
	}
}

func newLeases(b *testing.B, clients int) {
	tables := storetest.New(b, state.New)
	l := addressing.New(addressing.Config{Tables: tables})
	_, err := tables.Store.Update(b.Context(), func(tx *store.Tx) error {
		return tables.Networks.In(tx).Create(&trivet.Network{Meta: trivet.Meta{Name: "lan"}, Spec: trivet.NetworkSpec{
			CIDR: netip.MustParsePrefix("10.0.0.0/8"), NewClients: 1e9,
			Ranges: []trivet.Range{span("10.1.0.0", "10.200.0.0", "")},
		}})
	})
	if err != nil {
		b.Fatal(err)
	}
	go func() { _ = l.Run(b.Context()) }()
	network := l.Network(ip("10.0.0.1"))
	var next atomic.Int64
	var running sync.WaitGroup
	began := processorTime()
	b.ReportAllocs()
	b.ResetTimer()
	for range clients {
		running.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				mac := fmt.Sprintf("52:54:00:%02x:%02x:%02x", i>>16, i>>8&255, i&255)
				r := &addressing.Request{MAC: mac, Network: network, Server: ip("10.0.0.1")}
				a, err := l.Offer(r)
				if err == nil {
					_, err = l.Bind(b.Context(), r, a)
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	running.Wait()
	b.ReportMetric(float64((processorTime()-began).Microseconds())/float64(b.N), "cpu-µs/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "leases/s")
}

// processorTime returns what the process has used so far.
func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
