package main

import (
	"errors"
	"fmt"
	"time"
)

// onOne is how many agents scale connects to one head.
const onOne = 2000

// one connects many agents to one head, starts a workflow on each, and measures what they cost when they wait.
func (b *bench) one() error {
	s, err := b.startSite("scale", oneHost)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.template("short", "nothing"); err != nil {
		return err
	}
	empty, errEmpty := s.usage()
	f, err := s.writeMachines(0, onOne)
	if err != nil {
		return err
	}
	defer f.close()
	written, errWritten := s.usage()
	began := time.Now()
	if err := f.boot(); err != nil {
		return err
	}
	booted := time.Since(began)
	connected, errConnected := s.usage()
	rate, err := f.provisionAll("short", f.names)
	if err != nil {
		return err
	}
	time.Sleep(idleTime) // what was written comes to rest
	before, errBefore := s.usage()
	time.Sleep(idleTime)
	after, errAfter := s.usage()
	r := b.report
	r.add(row{what: fmt.Sprintf("%d agents connected", onOne), unit: "/s", ours: onOne / booted.Seconds()})
	r.add(row{what: "the head's processor time for one", unit: "ms", ours: ms(connected.cpu-written.cpu) / onOne})
	r.add(row{what: "one workflow on each", unit: "workflows/s", ours: rate})
	r.add(row{what: "memory for a machine's records", unit: "KB",
		ours: float64(written.sum()-empty.sum()) / 1e3 / onOne})
	r.add(row{what: "memory for a connected agent", unit: "KB",
		ours: float64(connected.sum()-written.sum()) / 1e3 / onOne})
	r.add(row{what: "resident memory with all of them", unit: "MB", ours: float64(connected.sum()) / 1e6})
	r.add(row{what: "processor while all wait for work", unit: "% of a core",
		ours: 100 * (after.cpu - before.cpu).Seconds() / idleTime.Seconds()})
	return errors.Join(errEmpty, errWritten, errConnected, errBefore, errAfter)
}

// many connects as many as are requested to as many heads, and kills one of these.
func (b *bench) many() error {
	var hosts []string
	for i := range b.heads {
		hosts = append(hosts, fmt.Sprint("10.16.3.", i+1))
	}
	return b.stormOf(hosts, b.agents, true)
}
