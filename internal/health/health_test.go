package health

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivet-project/trivet"
)

func TestParseMemory(t *testing.T) {
	total, available := parseMemory("MemTotal:       16301632 kB\nMemFree: 5 kB\nMemAvailable:    8000000 kB\nOdd\n\n")
	if total != 16301632<<10 || available != 8000000<<10 {
		t.Errorf("%d, %d", total, available)
	}
	if total, available := parseMemory("nothing"); total != 0 || available != 0 {
		t.Errorf("%d, %d", total, available)
	}
}

func headAt(name string, boot string, addrs ...string) *trivet.Head {
	h := &trivet.Head{Meta: trivet.Meta{Name: name}, Status: trivet.HeadStatus{State: trivet.HeadMember}}
	for _, a := range addrs {
		h.Status.DHCP = append(h.Status.DHCP, netip.MustParseAddr(a))
	}
	h.Status.Boot = []string{boot}
	return h
}

// A head probes, in each network that it has an address in and that has DHCP, itself and the others that have one.
func TestPlan(t *testing.T) {
	removed := headAt("head3", "http://10.0.0.4:7481", "10.0.0.4")
	removed.Status.State = trivet.HeadRemoved
	witness := headAt("head4", "", "10.0.0.5")
	witness.Spec.Role = trivet.RoleWitness
	heads := []*trivet.Head{headAt("head1", "http://10.0.0.2:7481", "10.0.0.2"),
		headAt("head0", "http://10.0.0.1:7481", "10.0.0.1", "10.1.0.1"), headAt("head2", "bad", "10.1.0.3"), removed, witness}
	var networks []*trivet.Network
	for name, cidr := range map[string]string{"lan": "10.0.0.0/24", "rack": "10.1.0.0/24", "far": "10.2.0.0/24"} {
		networks = append(networks, &trivet.Network{Meta: trivet.Meta{Name: name},
			Spec: trivet.NetworkSpec{CIDR: netip.MustParsePrefix(cidr)}})
	}
	off := &trivet.Network{Meta: trivet.Meta{Name: "off"}, Spec: trivet.NetworkSpec{DHCP: "off",
		CIDR: netip.MustParsePrefix("10.1.0.0/16")}}
	var got []string
	for _, p := range plan("head0", heads, append(networks, off)) {
		got = append(got, p.network+" "+p.head+" "+p.from.String()+" "+p.to.String()+" "+p.boot)
	}
	want := []string{"lan head0 10.0.0.1 10.0.0.1 http://10.0.0.1:7481", "lan head1 10.0.0.1 10.0.0.2 http://10.0.0.2:7481",
		"rack head0 10.1.0.1 10.1.0.1 http://10.1.0.1:7481", "rack head2 10.1.0.1 10.1.0.3 "}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := plan("head9", heads, networks); got != nil {
		t.Errorf("an unknown head: %v", got)
	}
}

// However many ask, what is collected is collected once in its age, and the end of a caller does not end it.
func TestCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		collected := 0
		c := newCached[int](time.Second)
		collect := func(ctx context.Context) int {
			time.Sleep(100 * time.Millisecond)
			if ctx.Err() != nil {
				t.Error("the collection was cancelled")
			}
			collected++
			return collected
		}
		leaving, leave := context.WithCancel(t.Context())
		results := make(chan int, 100)
		go func() { _, _ = c.get(leaving, collect) }()
		synctest.Wait()
		leave()
		for range 100 {
			go func() {
				v, err := c.get(t.Context(), collect)
				if err != nil {
					t.Error(err)
				}
				results <- v
			}()
		}
		for range 100 {
			if v := <-results; v != 1 {
				t.Errorf("%d", v)
			}
		}
		time.Sleep(time.Second)
		if v, err := c.get(t.Context(), collect); v != 2 || err != nil {
			t.Errorf("later: %d, %v", v, err)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		c.lock <- struct{}{}
		if _, err := c.get(ended, collect); !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that has gone: %v", err)
		}
	})
}

// A clock is judged by the bounds of the request, so that a slow response is no difference.
func TestClockAhead(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	for _, c := range []struct{ read, sent, received, want int }{
		{5, 0, 10, 0}, {0, 0, 10, 0}, {10, 0, 10, 0}, {17, 0, 10, 7}, {-3, 0, 10, -3},
	} {
		if got := clockAhead(at(c.read), at(c.sent), at(c.received)); got != time.Duration(c.want)*time.Second {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
