package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

func TestGCPercent(t *testing.T) {
	for _, c := range []struct {
		live uint64
		want int
	}{
		{0, 200},
		{60 << 20, 200},
		{128 << 20, 200}, // 256 MiB of garbage
		{256 << 20, 100}, // the same
		{512 << 20, 50},
		{640 << 20, 40},
		{2 << 30, 40},
	} {
		if got := gcPercent(c.live); got != c.want {
			t.Errorf("%d MiB live: %d %%, want %d", c.live>>20, got, c.want)
		}
	}
}

// The percentage follows what is live, after whichever collection.
func TestGCIsTunedAfterEachCollection(t *testing.T) {
	t.Setenv("GOGC", "")
	defer debug.SetGCPercent(100)
	tuneGC()
	until(t, func(percent uint64) bool { return percent > 100 })
	large := make([]byte, 600<<20) // of zeros that are not read: it takes no memory
	until(t, func(percent uint64) bool { return percent < 50 })
	runtime.KeepAlive(&large)
	large = nil
	until(t, func(percent uint64) bool { return percent > 100 })
}

// until collects garbage until Go has a percentage.
func until(t *testing.T, so func(percent uint64) bool) {
	t.Helper()
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		runtime.GC()
		if metrics.Read(sample); so(sample[0].Value.Uint64()) {
			return
		}
	}
	t.Fatalf("%d %%", sample[0].Value.Uint64())
}
