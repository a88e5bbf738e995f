package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/trivet-project/trivet/internal/lab"
	"github.com/trivet-project/trivet/internal/lab/grade"
)

// The sizes of the scenario: of make bench, and of make scale, which has 1,000 provisions and kills heads meanwhile.
const (
	fewFaulty  = 200
	manyFaulty = 1745
)

// faults runs the demo's scenario faults, and compares with a provisioner that has one timeout and no alternative.
func (b *bench) faults() error { return b.runFaults(fewFaulty) }

func (b *bench) manyFaults() error { return b.runFaults(manyFaulty, "--kill", "random") }

func (b *bench) runFaults(machines int, more ...string) error {
	args := append([]string{"demo", "--scenario", "faults", "--heads", "3", "--machines", strconv.Itoa(machines)},
		more...)
	b.report.command("trivet " + strings.Join(args, " "))
	cmd := exec.CommandContext(b.ctx, b.binary, append(args, "--timeout", "1h", "--json")...)
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.Output()
	var s lab.Summary
	if jsonErr := json.Unmarshal(bytes.TrimSpace(out), &s); jsonErr != nil || s.Result == nil {
		return fmt.Errorf("the demo of faults: %s: %w", out, errors.Join(err, jsonErr))
	}
	for _, v := range s.Violations {
		fmt.Fprintln(os.Stderr, "violation:", v)
	}
	b.faultRows(&s)
	return nil
}

func (b *bench) faultRows(s *lab.Summary) {
	r, t := b.report, s.Times
	peer := func(what, unit string, of func(*grade.Outcome) float64) {
		r.add(row{what: what, unit: unit, ours: of(&t.Trivet), peer: of(&t.OneTimeout), by: "one timeout"})
	}
	peer("provisions that succeeded", "%", func(o *grade.Outcome) float64 {
		return 100 * float64(o.Succeeded) / float64(o.Provisions)
	})
	peer("until a failure is seen, median", "s", func(o *grade.Outcome) float64 { return o.FailureSeen.Median })
	peer("until a failure is seen, p99", "s", func(o *grade.Outcome) float64 { return o.FailureSeen.P99 })
	peer("until a machine works, median", "s", func(o *grade.Outcome) float64 { return o.Working.Median })
	peer("until a machine works, p99", "s", func(o *grade.Outcome) float64 { return o.Working.P99 })
	for _, v := range []struct {
		what  string
		n     int
		bound bound
	}{
		{"provisions", t.Trivet.Provisions, bound{}},
		{"machines that a provision went on from", s.Switched, bound{}},
		{"machines in quarantine at the end", s.Quarantined, bound{}},
		{"of these, not at fault", s.HealthyQuarantined, none},
		{"failures of the wrong type", s.WrongType, none},
		{"failures seen more than 10 % and 2 s after their deadline", s.LateFailures, none},
		{"machines in quarantine for a bad image or platform, ever", s.SpentOnBadImage, under(3)},
		{"violations", len(s.Violations), none},
	} {
		r.add(row{what: v.what, ours: float64(v.n), bound: v.bound})
	}
	if s.Faults != nil {
		r.add(row{what: "heads killed meanwhile", ours: float64(s.HeadsKilled)})
		r.add(row{what: "acknowledged writes lost", ours: float64(s.AcknowledgedWritesLost), bound: none})
	}
	r.note("All deadlines are divided by %d, the one timeout of %s too. What it would have shown is computed: it gets "+
		"the machine that Trivet chose first, takes as long as Trivet where machine and image are good, and fails "+
		"after its timeout otherwise. Times are since the provision was created; those of machines that work are of "+
		"those that do.", t.Pace, grade.OneTimeout)
}
