package powerstate

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/trivet-project/trivet/internal/bmc"
	"github.com/trivet-project/trivet/internal/bmc/bmctest"
	"github.com/trivet-project/trivet/internal/reconcile"
)

// BenchmarkRead reads the power from a BMC, whose simulation is in the time.
func BenchmarkRead(b *testing.B) {
	service := bmctest.NewService(bmctest.NewBox())
	cfg := bmctest.Serve(b, service)
	cfg.User, cfg.Password = service.User, service.Password
	cfg.Insecure, cfg.Allows = true, func(netip.Addr) bool { return true }
	for b.Loop() {
		c, err := bmc.Open(b.Context(), cfg)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := c.Power(b.Context()); err != nil {
			b.Fatal(err)
		}
		c.Close()
	}
}

// BenchmarkMemory shows what a head has in memory of each machine whose BMC it reads: when that is, and a timer.
func BenchmarkMemory(b *testing.B) {
	const machines = 100_000
	names := make([]string, machines)
	for i := range names {
		names[i] = fmt.Sprint("machine-", i)
	}
	before := heap()
	q, reads := reconcile.NewQueue(), map[string]*history{}
	for b.Loop() {
		for _, name := range names {
			reads[name] = &history{}
			q.AddAfter(name, time.Hour)
		}
	}
	b.ReportMetric(float64(heap()-before)/machines, "bytes/machine")
	runtime.KeepAlive(q)
	runtime.KeepAlive(reads)
}

func heap() uint64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}
