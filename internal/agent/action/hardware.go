package action

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
)

// A test of hardware that finds a fault is not retried: a part that works sometimes is faulty. Each test writes what it
// has measured to its log, which is kept with the run, and what the kernel has warned of meanwhile.

// faultsOf returns the one failure of several tests: of the machine where one of them is.
func faultsOf(errs []error) error {
	var texts []string
	var first error
	isMachine, isFinal := false, false
	for _, err := range errs {
		if err == nil {
			continue
		}
		err = classify(err)
		var f *Failure
		_ = errors.As(err, &f)
		isMachine = isMachine || f.Fault == trivet.FaultMachine
		isFinal = isFinal || f.Final
		if first == nil {
			first = err
		}
		texts = append(texts, err.Error())
	}
	switch {
	case len(texts) < 2:
		return first
	case isMachine:
		return &Failure{Fault: trivet.FaultMachine, Final: isFinal, Err: errors.New(strings.Join(texts, "; "))}
	}
	var f *Failure
	_ = errors.As(first, &f)
	return &Failure{Fault: f.Fault, Final: isFinal, Err: errors.New(strings.Join(texts, "; "))}
}

// slowest is what every part that works is faster than, in bytes per second: a test of one that is not has found that.
const slowest = 10e6

// ended is the error of a test that was cancelled, or whose time is up: then the machine is at fault where it is slow, or
// where Trivet has computed the time (trivet check), and otherwise the timeout of the template, which is too short.
func ended(ctx context.Context, run *trivet.Run, part string, done, total int64, took time.Duration) error {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return context.Cause(ctx)
	}
	rate := float64(done) / max(took.Seconds(), 0.001)
	text := fmt.Sprintf("%s: %d of %d MiB were tested in %s", part, done>>20, total>>20, took.Round(time.Second))
	if rate < slowest {
		return finalf(trivet.FaultMachine, "%s, which is less than %d MB/s", text, int64(slowest/1e6))
	}
	if run.Spec.Release != "" {
		return finalf(trivet.FaultMachine, "%s, which is too slow", text)
	}
	needs := time.Duration(float64(total) / rate * float64(time.Second))
	return finalf(trivet.FaultConfiguration, "%s: the timeout of the action is too short; give it %s", text,
		(needs+needs/4).Round(time.Minute)+time.Minute)
}
