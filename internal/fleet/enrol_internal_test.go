package fleet

import (
	"fmt"
	"testing"
	"time"
)

// One network's flood of enrolments does not keep another network's machines out.
func TestEnrolmentRate(t *testing.T) {
	e := newPace(enrolRate, enrolBurst)
	now := time.Now()
	for i := range enrolBurst {
		if !e.allow("lan", now) {
			t.Fatalf("refused after %d", i)
		}
	}
	if e.allow("lan", now) || !e.allow("other", now) || !e.allow("lan", now.Add(time.Second)) {
		t.Error("the rate is not bounded by network and time")
	}
}

// The names that a pace remembers are bounded. Those that could write a burst again are forgotten first.
func TestPaceIsBounded(t *testing.T) {
	p, now := newPace(1, 2), time.Now()
	for i := range maxPaced - 1 {
		p.allow(fmt.Sprint("m", i), now)
	}
	now = now.Add(time.Hour)
	for range 3 {
		p.allow("hostile", now)
	}
	if p.allow("one more", now); len(p.limits) != 2 || p.allow("hostile", now) {
		t.Errorf("%d names are remembered; one has its burst again", len(p.limits))
	}
	for i := range 2 * maxPaced {
		if p.allow(fmt.Sprint("n", i), now); len(p.limits) > maxPaced {
			t.Fatalf("%d names are remembered", len(p.limits))
		}
	}
}
