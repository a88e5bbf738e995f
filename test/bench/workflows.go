package main

import (
	"errors"
	"fmt"
	"time"
)

const (
	workflowAgents = 500
	workflowRounds = 5
	noops          = 5
)

// workflows starts on every agent a run of five actions that do nothing, all at once, alternately on a site of one head
// and on one of three. Nothing is left out: each provision is created through the API, claims its machine, creates its
// workflow, is granted, reported and completed, each step a transaction that is on the disks of a majority before the
// next.
func (b *bench) workflows() error {
	one, err := b.workflowSite("one", oneHost)
	if err != nil {
		return err
	}
	defer one.close()
	three, err := b.workflowSite("three", threeHosts)
	if err != nil {
		return err
	}
	defer three.close()
	for round := range workflowRounds {
		if err := errors.Join(one.round(round), three.round(round)); err != nil {
			return err
		}
	}
	r := b.report
	what := fmt.Sprintf("%d agents x %d actions, from the provision to its success", workflowAgents, noops)
	r.add(row{what: what + ", 1 head", unit: "workflows/s", ours: median(one.rates), bound: over(500)})
	r.add(row{what: what + ", 3 heads", unit: "workflows/s", ours: median(three.rates)})
	r.add(row{what: "between two actions, p50", unit: "ms", ours: ms(quantile(one.boundaries, 0.5))})
	r.add(row{what: "between two actions, p99", unit: "ms", ours: ms(quantile(one.boundaries, 0.99)), bound: under(20)})
	r.add(row{what: "the head's processor time for a workflow, 1 head", unit: "ms", ours: median(one.processor)})
	r.add(row{what: "the heads' processor time for a workflow, 3 heads", unit: "ms", ours: median(three.processor)})
	r.add(row{what: "head's memory for a connected agent, 1 head", unit: "KB", ours: one.memory[0]})
	u, err := one.usage()
	r.add(row{what: "head's resident memory at the end, 1 head", unit: "MB", ours: float64(u.sum()) / 1e6})
	r.note("Agents, client and all heads run on the same computer, and take their part of its cores: three heads " +
		"do three times the work of one on them. Tinkerbell v0.25.0 was measured once on 2 such cores, apart from " +
		"this run: 12.9 workflows/s at best, 1 to 3 s between two actions, 1.1 GB.")
	return err
}

// workflowSite is a site and what its rounds measured.
type workflowSite struct {
	*site
	rates      []float64 // workflows/s
	processor  []float64 // the heads', in ms for one
	memory     []float64 // the heads', in KB for a connected agent
	boundaries []time.Duration
}

func (b *bench) workflowSite(name string, hosts []string) (*workflowSite, error) {
	s, err := b.startSite(name, hosts)
	if err != nil {
		return nil, err
	}
	var actions []string
	for i := range noops {
		actions = append(actions, fmt.Sprint("noop-", i))
	}
	if err := s.template("noops", actions...); err != nil {
		s.close()
		return nil, err
	}
	return &workflowSite{site: s}, nil
}

// round has agents of its own, as a machine that is returned boots again.
func (s *workflowSite) round(n int) error {
	before, errBefore := s.usage()
	f, err := s.writeMachines(n*workflowAgents, workflowAgents)
	if err != nil {
		return err
	}
	defer f.close()
	if err := f.boot(); err != nil {
		return err
	}
	idle, errIdle := s.usage()
	rate, err := f.provisionAll("noops", f.names)
	if err != nil {
		return err
	}
	used, errUsed := s.usage()
	var counters Counters
	if err := f.pool.Call("AgentPool.All", struct{}{}, &counters); err != nil {
		return err
	}
	s.rates = append(s.rates, rate)
	s.processor = append(s.processor, ms(used.cpu-idle.cpu)/workflowAgents)
	s.memory = append(s.memory, float64(idle.sum()-before.sum())/1e3/workflowAgents)
	s.boundaries = append(s.boundaries, counters.Boundaries...)
	return errors.Join(errBefore, errIdle, errUsed)
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }
