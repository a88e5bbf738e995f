package workflow

import (
	"testing"
	"time"

	"github.com/trivet-project/trivet"
)

func TestRounded(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 1234 * time.Microsecond: "1ms", 49512345 * time.Microsecond: "49.5s",
		3*time.Minute + 2449*time.Millisecond: "3m2.4s", 10 * time.Second: "10s",
	} {
		if got := rounded(trivet.Duration(d)); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
}
