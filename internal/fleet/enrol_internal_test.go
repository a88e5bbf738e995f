package fleet

import (
	"testing"
	"time"

	"golang.org/x/time/rate"
)

// One network's flood of enrolments does not keep another network's machines out.
func TestEnrolmentRate(t *testing.T) {
	e := &enrolments{byNetwork: map[string]*rate.Limiter{}}
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
