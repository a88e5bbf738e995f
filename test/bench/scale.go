package main

import (
	"fmt"
	"path/filepath"
	"time"
)

// scale connects many agents to one head, gives each a workflow, and looks at what they cost when they wait.
func (b *bench) scale() error {
	h, _, err := b.startHead(filepath.Join(b.dir, "scale"))
	if err != nil {
		return err
	}
	defer h.close()
	if err := b.noopTemplate(h); err != nil {
		return err
	}
	before, err := h.memory()
	if err != nil {
		return err
	}
	began := time.Now()
	f, err := b.startFleet(h, 0, b.agents)
	if err != nil {
		return err
	}
	defer f.close()
	joined := time.Since(began)
	after, err := h.memory()
	if err != nil {
		return err
	}
	rate, err := f.provisionAll()
	if err != nil {
		return err
	}
	cpu, err := h.cpu()
	if err != nil {
		return err
	}
	time.Sleep(idleTime)
	used, err := h.cpu()
	r := b.report
	r.add(row{what: fmt.Sprintf("%d machines written, agents connected", b.agents), unit: "/s", ours: float64(b.agents) / joined.Seconds()})
	r.add(row{what: "one workflow on each", unit: "workflows/s", ours: rate})
	r.add(row{what: "head's memory for a connected agent", unit: "KB", ours: float64(after-before) / 1e3 / float64(b.agents)})
	r.add(row{what: "head's resident memory with all of them", unit: "MB", ours: float64(after) / 1e6})
	r.add(row{what: "head's processor while all wait for work", unit: "% of a core", ours: 100 * (used - cpu).Seconds() / idleTime.Seconds()})
	return err
}
