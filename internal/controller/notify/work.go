package notify

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/notify"
	"github.com/trivet-project/trivet/internal/store"
)

const (
	// saveInterval is the shortest time between two writes of a status, and slowInterval where only events were added
	// that cannot be delivered at present: up to 50 KB.
	saveInterval = time.Second
	slowInterval = 5 * time.Second
	// cursorLag is how many revisions a written cursor may be behind before it is written for that alone. A head that
	// starts reads 1,000 revisions again that are older than its copy.
	cursorLag = 256
	// batch is how many events one call of a sender gets, and one mail at most.
	batch = 50
	// Events that happen within mailWindow are one mail, and there is at most one in mailInterval.
	mailWindow   = 10 * time.Second
	mailInterval = time.Minute
)

// work is the deliveries of one notifier by this head. It is used by one worker at a time.
type work struct {
	c        *Controller
	notifier *trivet.Notifier
	written  trivet.NotifierStatus // as the record has it
	status   trivet.NotifierStatus // with what was done since
	watch    *store.Watcher
	saved    time.Time // the last write by this head
	retry    time.Time // no attempt before
	own      []ownEvent
	dropped  drops
}

// ownEvent is an event of the notifier itself that is written with its status.
type ownEvent struct {
	reason, message string
	warning         bool
}

func newWork(c *Controller, n *trivet.Notifier) *work {
	w := &work{c: c, notifier: n, written: n.Status, status: n.Status}
	w.status.Pending = slices.Clone(n.Status.Pending)
	w.status.Head = c.Head
	if st := &w.status; st.Generation != n.Generation { // new, or changed: what failed before says nothing
		if st.Cursor == 0 || st.State == trivet.NotifierDisabled {
			st.Cursor = n.Revision
		}
		st.State, st.Reason, st.Generation, st.Failures, st.Next = trivet.NotifierActive, "", n.Generation, 0, time.Time{}
	}
	w.watch = c.Tables.Store.Watch(w.status.Cursor, "Event")
	return w
}

// continues reports whether a record is as this head has written it, and its spec as it was.
func (w *work) continues(n *trivet.Notifier) bool {
	return n.UID == w.notifier.UID && n.Generation == w.status.Generation && reflect.DeepEqual(n.Status, w.written)
}

// round takes the events that were added, delivers some of those that are pending, and writes the status. It returns
// when the next round is.
func (w *work) round(ctx context.Context) (after time.Duration, err error) {
	if w.written.Head != w.c.Head || w.written.Generation != w.status.Generation { // nothing is sent before that is known
		if err := w.save(ctx); err != nil {
			return 0, err
		}
	}
	if w.status.State == trivet.NotifierDisabled {
		return interval, nil
	}
	if err := w.take(ctx); err != nil {
		return 0, err
	}
	before := len(w.status.Pending)
	if before > 0 && !time.Now().Before(w.retry) {
		if err := w.deliver(ctx); err != nil {
			return 0, err
		}
	}
	progress := len(w.status.Pending) < before
	if wait := w.saveIn(time.Now()); wait > 0 {
		after = min(interval, wait)
	} else if err := w.save(ctx); err != nil {
		return 0, err
	}
	return w.nextRound(after, progress), nil
}

// nextRound returns the delay before the next round. after is that of a write which waits, or 0.
func (w *work) nextRound(after time.Duration, progress bool) time.Duration {
	if after == 0 {
		after = interval
	}
	switch {
	case len(w.status.Pending) == 0 || w.status.Head != w.c.Head:
		return after
	case progress:
		return time.Millisecond
	}
	return max(time.Millisecond, min(after, time.Until(w.retry)))
}

// take adds the events since the cursor that the notifier wants.
func (w *work) take(ctx context.Context) error {
	defer w.collect(len(w.status.Pending), time.Now())
	for {
		events, err := w.watch.Poll(ctx)
		if errors.Is(err, trivet.ErrCompacted) {
			w.skip()
			return nil
		}
		if err != nil {
			return err
		}
		for _, e := range events {
			if record, ok := e.Record().(*trivet.Event); ok && w.c.wants(w.notifier, record) {
				w.status.Pending = append(w.status.Pending, refTo(record))
			}
		}
		if over := len(w.status.Pending) - trivet.MaxPending; over > 0 {
			w.drop(over, fmt.Sprintf("more than %d were pending", trivet.MaxPending))
			w.status.Pending = slices.Clone(w.status.Pending[over:])
		}
		w.status.Cursor = w.watch.Revision()
		if len(events) == 0 {
			return nil
		}
	}
}

// collect delays the first mail about events, for those that follow.
func (w *work) collect(pending int, now time.Time) {
	if first := now.Add(mailWindow); w.notifier.Spec.Mail != nil && pending == 0 && w.retry.Before(first) {
		w.retry = first
	}
}

// skip continues at the present where the change feed does not reach back to the cursor: no head was up for long.
func (w *work) skip() {
	w.own = append(w.own, ownEvent{trivet.ReasonNotificationsDropped, fmt.Sprintf("the events between "+
		"revisions %d and %d of the store were not examined: no head followed them in time; see trivet get events",
		w.status.Cursor, w.c.Tables.Store.Revision()), true})
	w.watch = w.c.Tables.Store.Watch(0, "Event")
	w.status.Cursor = w.watch.Revision()
}

// deliver sends the oldest pending events.
func (w *work) deliver(ctx context.Context) error {
	messages, places, err := w.messages(ctx)
	if err != nil {
		return err
	}
	delivered, failed := w.send(ctx, messages)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	done := places[delivered] // of those before it some may have been lost
	if lost := done - delivered; lost > 0 {
		w.drop(lost, "they were written over by newer ones, or their machines are gone")
	}
	w.status.Pending = slices.Clone(w.status.Pending[done:])
	w.status.Delivered += int64(delivered)
	now := time.Now()
	if failed != nil {
		w.failed(failed, now)
	} else if delivered > 0 {
		w.succeeded(now)
	}
	return nil
}

// messages returns the messages of the oldest pending events, and the place of each among them; of the one after the
// last, too.
func (w *work) messages(ctx context.Context) (messages []notify.Message, places []int, err error) {
	refs := w.status.Pending[:min(batch, len(w.status.Pending))]
	for i, ref := range refs {
		e, err := w.c.event(ctx, ref)
		if err != nil {
			return nil, nil, err
		}
		if e != nil {
			messages, places = append(messages, w.c.message(e)), append(places, i)
		}
	}
	return messages, append(places, len(refs)), nil
}

func (w *work) send(ctx context.Context, messages []notify.Message) (delivered int, err error) {
	if len(messages) == 0 {
		return 0, nil
	}
	sender, err := w.c.open(w.notifier)
	if err != nil {
		return 0, err
	}
	defer sender.Close()
	return sender.Send(ctx, messages)
}
