package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// Go lets garbage grow to a percentage of what is live before it collects it. A high one saves processor time: with 200
// a head needs a tenth less than with 100, for about 20 KB of memory per agent. But at 100,000 machines it would be
// gigabytes of garbage. So the percentage becomes lower where more is live.
const (
	maxGC     = 200       // percent
	minGC     = 40        // percent; lower ones cost more processor time than the memory is worth
	garbage   = 256 << 20 // bytes that any head may have of it
	gcChanges = 10        // percent that are worth a change, which stops the program for a moment
)

// tuneGC sets the percentage after each collection, unless the operator has set one.
func tuneGC() {
	if os.Getenv("GOGC") != "" {
		return
	}
	debug.SetGCPercent(maxGC)
	set := maxGC
	afterEachGC(func() {
		if p := gcPercent(liveBytes()); max(p-set, set-p) >= gcChanges {
			debug.SetGCPercent(p)
			set = p
		}
	})
}

// gcPercent returns the percentage for so many bytes that are live.
func gcPercent(live uint64) int {
	return int(min(maxGC, max(minGC, garbage*100/max(live, 1))))
}

// liveBytes returns how much the last collection found to be live.
func liveBytes() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// afterEachGC calls do after each collection, in a goroutine of the runtime.
func afterEachGC(do func()) {
	type collected struct{ _ [16]byte } // large enough to be collected by itself
	runtime.AddCleanup(new(collected), func(do func()) {
		do()
		afterEachGC(do)
	}, do)
}
