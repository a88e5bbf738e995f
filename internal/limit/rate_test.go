package limit

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// allowed returns how many of n attempts an address may begin now.
func allowed(r *Rate, addr netip.Addr, n int) (count int) {
	for range n {
		if r.Allow(addr) {
			count++
		}
	}
	return count
}

// An unknown address has a burst, and then a rate; others have their own.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRate(2, 10, 16)
		if n := allowed(r, hostile, 1000); n != 10 {
			t.Errorf("%d at once; the burst is 10", n)
		}
		for second := range 3 {
			time.Sleep(time.Second)
			if n := allowed(r, hostile, 1000); n != 2 {
				t.Errorf("%d in second %d; the rate is 2", n, second)
			}
		}
		if !r.Allow(honest) {
			t.Error("another address is refused")
		}
		if !(*Rate)(nil).Allow(hostile) {
			t.Error("no rate refuses")
		}
	})
}

// An address whose callers are recognised has a higher rate, until none was for a while.
func TestKnownRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRate(2, 10, 16)
		allowed(r, honest, 1000)
		r.Recognise(honest)
		if n := allowed(r, honest, 1000); n != 160 {
			t.Errorf("%d at once at a known address; its burst is 160", n)
		}
		time.Sleep(rateKnown - time.Second)
		r.Recognise(honest)
		time.Sleep(rateKnown - time.Second)
		if n := allowed(r, honest, 1000); n != 160 {
			t.Errorf("%d at once after it was recognised again", n)
		}
		time.Sleep(time.Second)
		if n := allowed(r, honest, 1000); n != 10 {
			t.Errorf("%d at once when none was recognised for %s", n, rateKnown)
		}
	})
}

// The addresses that are remembered are bounded; those in use stay, and unknown addresses do not displace known ones.
func TestRateMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRate(1, 1, 2)
		r.Recognise(honest)
		allowed(r, hostile, 1)
		addr := netip.MustParseAddr("11.0.0.0")
		for range 2 * rateAddresses {
			addr = addr.Next()
			r.Allow(addr)
			if r.Allow(hostile) {
				t.Fatalf("%s: an address in use was forgotten", addr)
			}
		}
		if n := len(r.unknown.table); n != rateAddresses || r.unknown.recent.Len() != n {
			t.Errorf("%d addresses are remembered, in a list of %d", n, r.unknown.recent.Len())
		}
		if n := allowed(r, honest, 1000); n != 2 {
			t.Errorf("a known address may begin %d; it was forgotten", n)
		}
	})
}

// A set refuses the connections that an unknown address begins above its rate; those of load balancers and heads are
// not limited, and those of an address at which one was recognised hardly.
func TestSetRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		balancer, head := netip.MustParseAddr("10.0.0.3"), netip.MustParseAddr("10.0.0.4")
		s := NewSet(Limits{Unknown: 100, PerAddress: 100, Known: 100, KnownPerAddress: 100, Rate: NewRate(1, 5, 4),
			Class: func(a netip.Addr) Class { return map[netip.Addr]Class{balancer: Shared, head: Trusted}[a] }})
		enter := func(addr netip.Addr) (entered int, last *Entry) {
			for range 50 {
				if e := s.Enter(addr, func() {}); e != nil {
					entered++
					last = e
					e.Leave()
				}
			}
			return entered, last
		}
		for _, c := range []struct {
			addr netip.Addr
			want int
		}{{hostile, 5}, {balancer, 50}, {head, 50}} {
			if n, _ := enter(c.addr); n != c.want {
				t.Errorf("%s entered %d times, want %d", c.addr, n, c.want)
			}
		}
		_, e := enter(honest)
		e.Recognise()
		if n, _ := enter(honest); n != 20 {
			t.Errorf("a known address entered %d times", n)
		}
		if n := s.Stats().Limited; n != 45+45+30 {
			t.Errorf("%d were refused for their rate", n)
		}
	})
}
