package cluster

import (
	"errors"
	"fmt"
)

// The guarantees, each by the name of its violation.
var (
	ErrWriteLost      = errors.New("an acknowledged write is lost")
	ErrWriteTwice     = errors.New("a write happened twice")
	ErrRefusedDone    = errors.New("a write that was refused has happened")
	ErrStaleRead      = errors.New("a read returned an old value")
	ErrWatchSkipped   = errors.New("a watch omitted a change")
	ErrWatchRepeated  = errors.New("a watch repeated a change")
	ErrWatchReordered = errors.New("a watch reordered changes")
	ErrAddressTwice   = errors.New("an address was given to two machines")
	ErrAddressChanged = errors.New("a machine got another address")
	ErrMachineTwice   = errors.New("a machine was given to two runs")
	ErrActionTwice    = errors.New("an acknowledged action ran again")
	ErrRunFailed      = errors.New("a workflow failed")
	ErrRunStuck       = errors.New("a workflow did not end")
	ErrOldEpoch       = errors.New("an effect under an old epoch")
	ErrDeadlineEarly  = errors.New("a deadline fired early")
	ErrDeadlineLate   = errors.New("a deadline fired late or never")
	ErrBMCShared      = errors.New("two heads used a BMC at once")
	ErrPowerCycled    = errors.New("a machine was powered off without a request")
	ErrQuarantined    = errors.New("a machine was quarantined")
	ErrPowerWrong     = errors.New("the power of a machine is not as requested or recorded")
	ErrWriteRate      = errors.New("heads wrote too often")
	ErrFullStore      = errors.New("a full store did not work as it must")
	ErrHeadsDiffer    = errors.New("the records of heads differ")
	ErrHeadEnded      = errors.New("a head ended by itself")
	ErrUndecided      = errors.New("the history proves nothing")
)

// guarantees are all of them.
var guarantees = []error{
	ErrWriteLost, ErrWriteTwice, ErrRefusedDone, ErrStaleRead, ErrWatchSkipped, ErrWatchRepeated, ErrWatchReordered,
	ErrAddressTwice, ErrAddressChanged, ErrMachineTwice, ErrActionTwice, ErrRunFailed, ErrRunStuck, ErrOldEpoch,
	ErrDeadlineEarly, ErrDeadlineLate, ErrBMCShared, ErrPowerCycled, ErrQuarantined, ErrPowerWrong, ErrWriteRate,
	ErrFullStore, ErrHeadsDiffer, ErrHeadEnded, ErrUndecided,
}

// maxPrinted bounds how many violations of one guarantee are printed.
const maxPrinted = 5

// report gathers violations.
type report struct {
	violations []error
	count      map[error]int
}

func (r *report) add(guarantee error, format string, args ...any) {
	if r.count == nil {
		r.count = map[error]int{}
	}
	r.count[guarantee]++
	if r.count[guarantee] <= maxPrinted {
		r.violations = append(r.violations, fmt.Errorf("%w: "+format, append([]any{guarantee}, args...)...))
	}
}

// check returns all violations in a history.
func (h *History) check() []error {
	r := &report{}
	for _, d := range h.Deaths {
		r.add(ErrHeadEnded, "%s", d)
	}
	for _, t := range h.Troubles {
		r.add(ErrUndecided, "%s", t)
	}
	for _, text := range h.Full {
		r.add(ErrFullStore, "%s", text)
	}
	for _, text := range h.Differ {
		r.add(ErrHeadsDiffer, "%s", text)
	}
	h.checkKeys(r)
	h.checkLeases(r)
	h.checkWaits(r)
	h.checkLedgers(r)
	if h.Cut {
		r.add(ErrUndecided, "only %d changes were followed once more, as the next ones were compacted", len(h.Whole))
		return r.violations
	}
	h.checkFeeds(r)
	h.checkRecords(r)
	h.checkBMCs(r)
	return r.violations
}
