package notify

import (
	"errors"
	"fmt"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
	"github.com/trivet-project/trivet/internal/notify"
	"github.com/trivet-project/trivet/internal/wait"
)

const (
	minBackoff = time.Second
	maxBackoff = 5 * time.Minute
	// attempts is how many a head makes before the failure is an event, and another head tries.
	attempts = 3
	// dropInterval is the shortest time between two events about dropped ones.
	dropInterval = time.Minute
)

// backoff returns the delay after a number of failures.
func backoff(failures int) time.Duration {
	return wait.Jitter(min(minBackoff<<min(failures-1, 20), maxBackoff))
}

// failed records an attempt that failed.
func (w *work) failed(err error, now time.Time) {
	st := &w.status
	st.Failures++
	if errors.Is(err, notify.ErrGone) {
		w.disable(err)
		return
	}
	delay := backoff(st.Failures)
	var later *notify.RetryError
	if errors.As(err, &later) {
		delay = max(delay, later.After)
	}
	w.retry = now.Add(delay)
	st.State, st.Next = trivet.NotifierFailing, w.retry.UTC().Truncate(time.Second)
	st.Reason = fmt.Sprintf("%s: %s; to try it: trivet notifier test %s", w.c.Head, apitypes.Brief(err.Error()),
		w.notifier.Name)
	if st.Failures == attempts {
		w.own = append(w.own, ownEvent{trivet.ReasonNotifierFailing,
			fmt.Sprintf("%d attempts failed; %s", attempts, st.Reason), true})
	}
	if st.Failures%attempts == 0 {
		st.Head = w.c.next()
	}
}

// succeeded records an attempt that succeeded.
func (w *work) succeeded(now time.Time) {
	st := &w.status
	if st.Failures >= attempts {
		w.own = append(w.own, ownEvent{trivet.ReasonNotifierRecovered,
			fmt.Sprintf("%s delivers again, after %d attempts that failed", w.c.Head, st.Failures), false})
	}
	st.State, st.Reason, st.Failures, st.Next = trivet.NotifierActive, "", 0, time.Time{}
	st.Last, w.retry = now.UTC().Truncate(time.Millisecond), time.Time{}
	if w.notifier.Spec.Mail != nil {
		w.retry = now.Add(mailInterval)
	}
}

// disable ends the deliveries until an operator changes the spec.
func (w *work) disable(err error) {
	st := &w.status
	st.State, st.Next = trivet.NotifierDisabled, time.Time{}
	st.Reason = fmt.Sprintf("%v; to enable it again, change its spec, such as the URL, or delete it", err)
	w.own = append(w.own, ownEvent{trivet.ReasonNotifierDisabled, st.Reason, true})
	w.drop(len(st.Pending), "the notifier is disabled")
	st.Pending = nil
}

// drops are dropped events that no event has reported yet.
type drops struct {
	count    int
	why      string
	reported time.Time // when the last event was written
}

func (w *work) drop(n int, why string) {
	if n == 0 {
		return
	}
	w.status.Dropped += int64(n)
	w.dropped.count, w.dropped.why = w.dropped.count+n, why
}

// reportDrops adds an event about those that were dropped, at most once in dropInterval.
func (w *work) reportDrops(now time.Time) {
	d := &w.dropped
	if d.count == 0 || now.Sub(d.reported) < dropInterval {
		return
	}
	w.own = append(w.own, ownEvent{trivet.ReasonNotificationsDropped,
		fmt.Sprintf("%d events will not be delivered: %s; %d in all; see trivet get events", d.count, d.why,
			w.status.Dropped), true})
	d.count, d.reported = 0, now
}
