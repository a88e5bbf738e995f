package workflow_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/workflow"
)

// What machines share is at fault after the second one that fails at one step, a network after the third one. Machines
// that fail at different steps are at fault themselves.
func TestAtFault(t *testing.T) {
	const dhcp, kernel, hello = trivet.StepDHCP, trivet.StepKernel, trivet.StepHello
	for _, c := range []struct {
		steps []string
		want  string
	}{
		{[]string{hello}, ""},
		{[]string{hello, hello}, "it is at fault: m0 and m1 failed at hello, and no machine has succeeded since"},
		{[]string{dhcp, dhcp}, ""},
		{[]string{dhcp, dhcp, dhcp}, "it is at fault: m0, m1 and m2 failed at dhcp, and no machine has succeeded since"},
		{[]string{dhcp, dhcp, kernel}, ""},
		{[]string{dhcp, kernel, dhcp, kernel, dhcp, kernel}, ""},
		{[]string{kernel, dhcp, dhcp, dhcp}, "it is at fault: m1, m2 and m3 failed at dhcp, and no machine has succeeded since"},
		{[]string{dhcp, dhcp, dhcp, kernel}, "it is at fault: m0, m1 and m2 failed at dhcp, and no machine has succeeded since"},
	} {
		var s *trivet.SharedFailures
		for i, step := range c.steps {
			s = workflow.AddFailure(s, 1, fmt.Sprint("m", i), &trivet.Failure{Step: step}, time.Now())
		}
		if got := workflow.AtFault("it", s, 1); got != c.want {
			t.Errorf("%v: %q, want %q", c.steps, got, c.want)
		}
		if got := workflow.AtFault("it", s, 2); got != "" {
			t.Errorf("%v, after a change: %q", c.steps, got)
		}
	}
}
