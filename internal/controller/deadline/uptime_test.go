package deadline

import (
	"testing"
	"testing/synctest"
	"time"
)

// Time counts while agents can be heard. The time after a gap, in which they report what happened meanwhile, does not
// count.
func TestUptime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		led := true
		u := newUptime(func() bool { return led })
		look := func(d time.Duration) {
			for range d / sampleInterval {
				time.Sleep(sampleInterval)
				u.sample(time.Now())
			}
		}
		counts := func(what string, d, least, most time.Duration) {
			t.Helper()
			before, _ := u.now()
			look(d)
			now, _ := u.now()
			if got := now - before; got < least || got > most {
				t.Errorf("%s: of %s, %s are counted, want %s to %s", what, d, got, least, most)
			}
		}
		counts("all is well", time.Minute, time.Minute, time.Minute)
		led = false
		counts("without a leader", 15*time.Minute, 0, sampleInterval) // detected at a sample
		led = true
		counts("agents return", settleTime-sampleInterval, 0, 0)
		counts("all is well again", time.Minute, time.Minute-2*sampleInterval, time.Minute)
		led = false
		look(3 * time.Second)
		led = true
		counts("a short gap costs little", 10*time.Second, 6*time.Second, 8*time.Second)
		before, _ := u.now()
		time.Sleep(time.Hour) // stopped
		u.sample(time.Now())
		now, _ := u.now()
		if got := now - before; got > 2*sampleInterval {
			t.Errorf("a process that was stopped for an hour counts %s of it", got)
		}
		counts("agents return", settleTime-sampleInterval, 0, 0)
	})
}
