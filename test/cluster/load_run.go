package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/agent/installer/journal"
)

// assistAfter is when an operator powers a machine on again that has not booted: a head whose copy was behind may
// have directed it to its disk. That is never destructive, and costs the time of a deadline or of a person.
const assistAfter = 15 * time.Second

// provision requests a machine of a pool, installs it, and returns it, again and again.
func (l *load) provision(loop int) {
	pool := poolOf(loop, len(l.racks), l.managed)
	for n := 0; l.ticket(); n++ {
		p := &trivet.Provision{Meta: meta(fmt.Sprintf("p%d-%d", loop, n)), Spec: trivet.ProvisionSpec{
			Template: "install", Selector: map[string]string{"pool": pool}}}
		if pool == managedPool {
			p.Spec.Template = "install-managed"
			l.run(p, 0, func(*trivet.Provision) {}, func(string) {})
			continue
		}
		l.run(p, 0, l.byHand(p.Name), func(machine string) { l.power("off", machine) })
	}
}

// ticket waits until a workflow may begin, and reports whether the load goes on.
func (l *load) ticket() bool {
	if l.tickets != nil {
		select {
		case <-l.tickets:
		case <-l.end:
		case <-l.ctx.Done():
		}
	}
	return !l.over()
}

// byHand returns what an operator does about the machine of a provision: it is powered on, and again where it does not
// boot.
func (l *load) byHand(name string) func(*trivet.Provision) {
	powered, at := "", time.Time{}
	return func(now *trivet.Provision) {
		m := now.Status.Machine
		assists := m == powered && time.Since(at) > assistAfter
		if m == "" || now.Status.State.Ended() || m == powered && (!assists || !l.idles(now.Status.Workflow)) {
			return
		}
		if assists {
			l.history.note(func(h *History) { h.Assisted = append(h.Assisted, name+" on "+m) })
		}
		powered, at = m, time.Now()
		l.power("on", m)
	}
}

// idles reports whether a run waits for its machine to boot.
func (l *load) idles(workflow string) bool {
	w, err := client.Of[trivet.Workflow](l.sdk).Get(l.ctx, workflow)
	return err == nil && (w.Status.State == trivet.WorkflowBooting || w.Status.State == trivet.WorkflowStarting)
}

// lateAfter is the deadline of a machine that is not powered on.
const lateAfter = 10 * time.Second

// late waits for a deadline to fire, again and again.
func (l *load) late(loop int) {
	for n := 0; !l.over(); n++ {
		p := &trivet.Provision{Meta: meta(fmt.Sprintf("late%d-%d", loop, n)), Spec: trivet.ProvisionSpec{
			Template: "never", Machine: fmt.Sprint("late", loop)}}
		l.run(p, lateAfter, func(*trivet.Provision) {}, func(string) {})
	}
}

// run creates a provision, follows it to its end, and returns its machine. What has begun is completed: there are
// more machines than loops, so that no loop waits for long.
func (l *load) run(p *trivet.Provision, deadline time.Duration, observe func(*trivet.Provision),
	free func(machine string)) {
	records := client.Of[trivet.Provision](l.sdk)
	w := wait{Name: p.Name, Deadline: deadline, Call: l.history.now()}
	if !l.retry(func() error { return l.make(l.ctx, p) }) {
		return
	}
	for l.ctx.Err() == nil {
		now, err := records.Get(l.ctx, p.Name)
		if err == nil {
			observe(now)
			w.State, w.Reason, w.Machine = string(now.Status.State), now.Status.Reason, now.Status.Machine
			if now.Status.State.Ended() {
				w.Return = l.history.now()
				break
			}
		}
		nap(l.ctx, 250*time.Millisecond)
	}
	l.history.note(func(h *History) { h.Waits = append(h.Waits, w) })
	if w.Machine == "" || w.Return == 0 {
		return
	}
	free(w.Machine)
	l.retry(func() error { return records.Delete(l.ctx, p.Name) })
	if !l.hasBMC(w.Machine) { // it was quarantined, or is released and powered off, which no BMC reports
		l.retry(func() error { return l.sdk.Accept(l.ctx, w.Machine) })
	}
}

// retry calls do until it has succeeded, and reports whether it has.
func (l *load) retry(do func() error) bool {
	for l.ctx.Err() == nil {
		err := do()
		if err == nil || errors.Is(err, trivet.ErrConflict) || errors.Is(err, trivet.ErrNotFound) {
			return true
		}
		nap(l.ctx, 250*time.Millisecond)
	}
	return false
}

func nap(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// power powers a machine of the pool on, or off and on where it is on, or off. One with a BMC is only reset.
func (l *load) power(state, machine string) {
	var i int
	if _, err := fmt.Sscanf(machine, "m%d", &i); err != nil {
		return
	}
	if l.hasBMC(machine) {
		state = "reset"
	}
	l.racks[i%len(l.racks)].send(state, machine, machineMAC(1, i))
}

// Timeouts of the end of a round: of runs that have begun, and of watches.
const (
	settled  = 3 * time.Minute
	overtime = time.Minute
)

// stop ends the workers, waits until nothing runs, and collects what remains to be observed. A run that has not ended
// in time is stuck, which the history shows.
func (l *load) stop(ctx context.Context) error {
	close(l.end)
	defer context.AfterFunc(ctx, l.cancel)()
	defer time.AfterFunc(l.settled, l.cancel).Stop()
	l.workers.Wait()
	l.cancel()
	ctx, cancel := context.WithTimeout(ctx, overtime)
	defer cancel()
	l.converge(ctx)
	err := errors.Join(l.finish(ctx), l.compare(ctx), l.mark(ctx))
	l.unfeed()
	l.feeds.Wait()
	l.gather()
	return err
}

// stuck reports whether a run has not ended.
func (l *load) stuck() (stuck bool) {
	l.history.note(func(h *History) {
		stuck = slices.ContainsFunc(h.Waits, func(w wait) bool { return w.Return == 0 })
	})
	return stuck
}

// gather powers the racks off and reads the machines' ledgers.
func (l *load) gather() {
	for _, r := range l.racks {
		if l.stuck() {
			r.signal(syscall.SIGQUIT) // it prints the stacks of its machines
		}
		r.close()
	}
	l.history.note(func(h *History) {
		h.Took = l.history.now()
		for _, r := range l.racks {
			if err := h.gatherBMC(r); err != nil {
				h.Troubles = append(h.Troubles, err.Error())
			}
		}
		for i := range len(l.racks) * l.perRack {
			entries, err := journal.Read(l.site.ledgerOf(machineName(i)))
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !strings.Contains(err.Error(), "no header") {
				h.Troubles = append(h.Troubles, err.Error())
			}
			h.Ledgers[machineName(i)] = entries
		}
	})
}
