package main

import (
	"path/filepath"
	"time"
)

// idleTime is what a head gets to come to rest before its memory is read.
const idleTime = 10 * time.Second

// idle starts a head on an empty directory and on its own, and measures what it uses without requests.
func (b *bench) idle() error {
	const rounds = 5
	var first, again, memory []float64
	for i := range rounds {
		dir := filepath.Join(b.dir, "idle")
		h, took, err := b.startHead(dir)
		if err != nil {
			return err
		}
		first = append(first, took.Seconds())
		h.stop()
		if h, took, err = b.startHead(dir); err != nil {
			return err
		}
		again = append(again, took.Seconds())
		if i == 0 {
			time.Sleep(idleTime)
			bytes, err := h.Resident()
			if err != nil {
				return err
			}
			memory = append(memory, float64(bytes)/1e6)
		}
		h.close()
	}
	b.report.add(row{what: "exec to /readyz, empty directory", unit: "s", ours: median(first), bound: under(2)})
	b.report.add(row{what: "exec to /readyz, own directory", unit: "s", ours: median(again), bound: under(2)})
	b.report.add(row{what: "resident memory after 10 s", unit: "MB", ours: median(memory), bound: under(100)})
	return nil
}
