package reconcile

import (
	"testing"
	"testing/synctest"
	"time"
)

// The metrics of a queue count what waits and what failed, and the age of what has waited longest.
func TestQueueStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue()
		if s := q.stats(); s != (stats{}) {
			t.Errorf("an empty queue: %+v", s)
		}
		q.Add("a")
		time.Sleep(3 * time.Second)
		q.Add("b")
		q.backoff("c")
		time.Sleep(2 * time.Second)
		if s := q.stats(); s != (stats{waiting: 2, failing: 1, oldest: 5 * time.Second}) {
			t.Errorf("%+v", s)
		}
		q.next()
		if s := q.stats(); s != (stats{waiting: 1, failing: 1, oldest: 2 * time.Second}) {
			t.Errorf("after one: %+v", s)
		}
	})
}
