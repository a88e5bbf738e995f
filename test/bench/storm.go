package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// storm kills the head that leads, to which a third of the agents are connected, and follows these to the others.
// Half of all agents are at work then, the others wait for some. A head that judges silence alone, or too soon,
// would declare those at work lost.
type storm struct {
	*fleet
	b       *bench
	n       int
	working []string // machines
	idle    []string

	killed *member
	at     time.Time // of the kill
}

// stormAgents is how many agents make bench has.
const stormAgents = 3000

func (b *bench) storm() error { return b.stormOf(threeHosts, stormAgents, false) }

// stormOf has a head at each address, and n agents; whole: the head that was killed is started again.
func (b *bench) stormOf(hosts []string, n int, whole bool) error {
	s, err := b.startSite("storm", hosts)
	if err != nil {
		return err
	}
	defer s.close()
	st := &storm{b: b, n: n}
	if err := errors.Join(s.template("held", waits), s.template("short", "nothing")); err != nil {
		return err
	}
	if err := st.gather(s); err != nil {
		return err
	}
	defer st.close()
	steps := []func() error{st.work, st.rest, st.kill, st.judge, st.goOn}
	if whole {
		steps = append(steps, st.comeBack)
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// gather writes the machines down and connects their agents.
func (st *storm) gather(s *site) (err error) {
	empty, err := s.usage()
	if err != nil {
		return err
	}
	began := time.Now()
	if st.fleet, err = s.writeMachines(0, st.n); err != nil {
		return err
	}
	st.working, st.idle = st.names[:st.n/2], st.names[st.n/2:]
	wrote := time.Since(began)
	written, err := s.usage()
	if err != nil {
		return err
	}
	began = time.Now()
	if err := st.boot(); err != nil {
		return err
	}
	booted := time.Since(began)
	time.Sleep(idleTime) // the agents probe the other heads, too
	u, errHeads := s.usage()
	agents, errAgents := st.agents.Resident()
	cpu, errCPU := st.agents.CPU()
	each := float64(st.n)
	r := st.b.report
	r.add(row{what: fmt.Sprintf("%d machines written", st.n), unit: "/s", ours: each / wrote.Seconds()})
	r.add(row{what: "agents connected, and granted their first epoch", unit: "/s", ours: each / booted.Seconds()})
	r.add(row{what: "the heads' processor time for one", unit: "ms", ours: ms(u.cpu-written.cpu) / each})
	r.add(row{what: "the agents' processor time for one", unit: "ms", ours: ms(cpu) / each})
	r.add(row{what: "each head's memory for a machine's records", unit: "KB",
		ours: float64(written.sum()-empty.sum()) / 1e3 / float64(len(s.heads)) / each})
	r.add(row{what: "its head's memory for a connected agent", unit: "KB",
		ours: float64(u.sum()-written.sum()) / 1e3 / each})
	r.add(row{what: "an agent's memory, in its process of many", unit: "KB", ours: float64(agents) / 1e3 / each})
	r.add(row{what: "resident memory of the largest head", unit: "MB", ours: float64(slices.Max(u.memory)) / 1e6})
	return errors.Join(errHeads, errAgents, errCPU)
}

// work starts a run that does not end on half of the machines.
func (st *storm) work() error {
	if err := st.provision("held", st.working); err != nil {
		return err
	}
	return st.until("half of the agents are at work", func(l Counters) bool { return l.Waiting == len(st.working) })
}

// rest measures what the heads use when nothing changes.
func (st *storm) rest() error {
	time.Sleep(idleTime) // until all that was written is applied
	before, errBefore := st.usage()
	time.Sleep(2 * idleTime)
	after, errAfter := st.usage()
	st.b.report.add(row{what: "the heads' processor while half of the agents work and half wait", unit: "% of a core",
		ours: 100 * (after.cpu - before.cpu).Seconds() / (2 * idleTime).Seconds()})
	st.b.report.add(row{what: "resident memory of the largest head then", unit: "MB",
		ours: float64(slices.Max(after.memory)) / 1e6})
	return errors.Join(errBefore, errAfter)
}

// kill ends a head, and waits until all of its agents are connected to others.
func (st *storm) kill() (err error) {
	if st.killed, err = st.leader(); err != nil {
		return err
	}
	st.at = time.Now()
	st.killed.Kill()
	before, err := st.usage()
	if err != nil {
		return err
	}
	gone := func(l Counters) bool { return l.On[st.killed.host] == 0 }
	if err := st.until("all are on other heads", gone); err != nil {
		return err
	}
	after, err := st.usage()
	if err != nil {
		return err
	}
	counters, err := st.counters()
	if err != nil {
		return err
	}
	victims, others := st.followed(counters)
	r := st.b.report
	r.add(row{what: "agents that were connected to the head that is killed", ours: float64(len(victims))})
	r.add(row{what: "of these back on another head, half", unit: "s", ours: quantile(victims, 0.5)})
	r.add(row{what: "99 %", unit: "s", ours: quantile(victims, 0.99)})
	r.add(row{what: "all", unit: "s", ours: slices.Max(victims),
		bound: under(trivet.DefaultAgentTimeout.D().Seconds())})
	r.add(row{what: "most within a second", unit: "/s", ours: float64(peak(victims)),
		bound: under(0.4 * float64(len(victims)))})
	r.add(row{what: "agents of other heads that connected again", ours: float64(len(others))})
	r.add(row{what: "the other heads' processor meanwhile", unit: "% of a core",
		ours: 100 * (after.cpu - before.cpu).Seconds() / slices.Max(victims)})
	return nil
}

func (st *storm) counters() (l Counters, err error) {
	err = st.pool.Call("AgentPool.All", struct{}{}, &l)
	return l, err
}

// followed returns when agents last connected since st.at, in seconds after it: those that were on the head that was
// killed, and others.
func (st *storm) followed(l Counters) (victims, others []float64) {
	was, last := map[string]string{}, map[string]time.Time{}
	for _, c := range l.Connects {
		if c.At.Before(st.at) {
			was[c.Machine] = c.Head
		} else {
			last[c.Machine] = c.At
		}
	}
	for machine, at := range last {
		if after := at.Sub(st.at).Seconds(); was[machine] == st.killed.host {
			victims = append(victims, after)
		} else {
			others = append(others, after)
		}
	}
	slices.Sort(victims)
	slices.Sort(others)
	return victims, others
}

// peak is the most of the times, which are sorted, that lie within a second.
func peak(times []float64) (most int) {
	from := 0
	for to, at := range times {
		for at-times[from] >= 1 {
			from++
		}
		most = max(most, to-from+1)
	}
	return most
}

// judge waits until an agent that was silent since the kill would be declared lost, and checks that none is.
func (st *storm) judge() error {
	time.Sleep(time.Until(st.at.Add(trivet.DefaultAgentTimeout.D() + idleTime)))
	machines, _, err := client.Of[trivet.Machine](st.client).List(st.b.ctx, client.ListOptions{})
	if err != nil {
		return err
	}
	workflows, _, err := client.Of[trivet.Workflow](st.client).List(st.b.ctx, client.ListOptions{})
	if err != nil {
		return err
	}
	lost, other := 0, 0
	for _, w := range workflows {
		lost += w.Status.Resets
		if w.Status.State != trivet.WorkflowRunning {
			other++
		}
	}
	busy := 0
	for _, m := range machines {
		switch m.Status.State {
		case trivet.MachineProvisioning:
			busy++
		case trivet.MachineAvailable:
		default:
			other++
		}
	}
	if busy != len(st.working) || len(workflows) != busy {
		return fmt.Errorf("%d machines and %d workflows are at work; %d were", busy, len(workflows), len(st.working))
	}
	st.b.report.add(row{what: "agents declared lost; machines and runs in a state that they should not have",
		ours: float64(lost + other), bound: none})
	return nil
}

// goOn lets the runs end, and starts one on each waiting agent: an agent is connected when it can receive a run.
func (st *storm) goOn() error {
	rate, err := st.provisionAll("short", st.idle)
	if err != nil {
		return err
	}
	st.b.report.add(row{what: "a run for each agent that waited, by the two heads", unit: "workflows/s", ours: rate})
	began := time.Now()
	if err := st.pool.Call("AgentPool.Release", struct{}{}, nil); err != nil {
		return err
	}
	if err := st.awaitSuccess(st.working); err != nil {
		return err
	}
	st.b.report.add(row{what: "the runs under way have ended, all with success, after", unit: "s",
		ours: time.Since(began).Seconds()})
	return nil
}

// comeBack starts the head again, and waits until its agents are back.
func (st *storm) comeBack() error {
	st.at = time.Now()
	if err := st.start(st.killed); err != nil {
		return err
	}
	third := st.n * 3 / 10
	back := func(l Counters) bool { return l.On[st.killed.host] >= third }
	if err := st.until("the agents of the head are back", back); err != nil {
		return err
	}
	counters, err := st.counters()
	if err != nil {
		return err
	}
	_, times := st.followed(counters)
	st.b.report.add(row{what: "the head started again: nine tenths of its agents are back after", unit: "s",
		ours: slices.Max(times)})
	st.b.report.add(row{what: "most within a second", unit: "/s", ours: float64(peak(times))})
	return nil
}
