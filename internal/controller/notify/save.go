package notify

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// saveIn returns in how long the status is to be written: 0 is now.
func (w *work) saveIn(now time.Time) time.Duration {
	was, is := &w.written, &w.status
	least := interval
	switch {
	case len(w.own) > 0 || was.State != is.State || was.Head != is.Head || was.Failures != is.Failures:
		return 0
	case was.Delivered != is.Delivered:
		least = saveInterval
	case newest(was) != newest(is):
		least = slowInterval
	case is.Cursor-was.Cursor < cursorLag:
		return interval // there is nothing to write
	}
	return max(0, least-now.Sub(w.saved))
}

func newest(st *trivet.NotifierStatus) string {
	if len(st.Pending) == 0 {
		return ""
	}
	return st.Pending[len(st.Pending)-1]
}

// save writes the status, with the events of what happened, if no other head has written it.
func (w *work) save(ctx context.Context) error {
	now := time.Now()
	w.reportDrops(now)
	notifiers, events := w.c.Tables.Notifiers, w.c.Tables.Events
	revision, err := w.c.Tables.Store.Update(ctx, func(tx *store.Tx) error {
		n, err := notifiers.In(tx).Get(w.notifier.Name)
		if err != nil {
			return err
		}
		if n.UID != w.notifier.UID || !reflect.DeepEqual(n.Status, w.written) {
			return errOther
		}
		n.Status = w.status
		for _, e := range w.own {
			n.Status.Events++
			if err := events.In(tx).Put(w.c.eventOf(n, e, now)); err != nil {
				return err
			}
		}
		return notifiers.In(tx).Put(n)
	})
	if err != nil {
		return err
	}
	stored, err := notifiers.Get(w.notifier.Name)
	if err == nil && stored.Revision != revision {
		err = errOther
	}
	if err != nil {
		return err
	}
	w.own, w.saved, w.written, w.status.Events = nil, now, stored.Status, stored.Status.Events
	return nil
}

// errOther ends the work of this head on a notifier: it begins again at what the record has now.
var errOther = fmt.Errorf("%w: it was written since", trivet.ErrConflict)

func (c *Controller) eventOf(n *trivet.Notifier, e ownEvent, now time.Time) *trivet.Event {
	return &trivet.Event{
		Meta: trivet.Meta{Name: trivet.NotifierEventName(n.Name, n.Status.Events)},
		Spec: trivet.EventSpec{Subject: "notifier/" + n.Name, SubjectUID: n.UID, Seq: n.Status.Events, Time: now,
			Reason: e.reason, Message: e.message, Warning: e.warning, Head: c.Head},
	}
}
