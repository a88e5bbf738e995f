package lab

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/wait"
)

// settleTimeout bounds how long heads have to be well again, and then provisions to end.
const settleTimeout = 3 * time.Minute

// awaitBlessed waits until every invariant of trivet status holds. Where that takes too long it returns those that do
// not.
func (s *recoverySite) awaitBlessed(ctx context.Context) (problems []string) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	for {
		var report trivet.StatusReport
		var now []string
		if err := s.operator.read(ctx, &report, "status"); err != nil {
			now = []string{err.Error()}
		} else if now = doesNotHold(&report); len(now) == 0 {
			return nil
		}
		if ctx.Err() != nil {
			return append(problems, "all is not well after "+settleTimeout.String())
		}
		if !slices.Equal(now, problems) {
			problems = now
			s.status("not well yet: %s", strings.Join(problems, "; "))
		}
		_ = wait.Sleep(ctx, 300*time.Millisecond)
	}
}

// doesNotHold returns the invariants that do not hold, each with what is wrong. One that holds because nothing was
// probed does not count.
func doesNotHold(r *trivet.StatusReport) (problems []string) {
	for _, i := range r.Invariants {
		if i.State != trivet.InvariantHolds {
			problems = append(problems, i.Name+": "+i.Summary)
		}
	}
	probed := map[string]bool{}
	for _, h := range r.Facts.Heads {
		if h.Own != nil {
			for _, p := range h.Own.Probes {
				probed[p.Service] = true
			}
		}
	}
	for _, service := range []string{trivet.ProbeDHCP, trivet.ProbeTFTP, trivet.ProbeScript, trivet.ProbeKernel} {
		if !probed[service] {
			problems = append(problems, service+": not probed")
		}
	}
	return problems
}
