package ipam_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/ipam"
)

func ip(s string) netip.Addr { return netip.MustParseAddr(s) }

func network(cidr string, ranges ...trivet.Range) *trivet.Network {
	return &trivet.Network{Meta: trivet.Meta{Name: "n"},
		Spec: trivet.NetworkSpec{CIDR: netip.MustParsePrefix(cidr), Ranges: ranges}}
}

func span(from, to, use string) trivet.Range {
	return trivet.Range{From: ip(from), To: ip(to), Use: use}
}

func none(netip.Addr) bool { return false }

func TestTheUseChoosesTheRange(t *testing.T) {
	n := network("10.0.0.0/24", span("10.0.0.10", "10.0.0.19", ipam.Known),
		span("10.0.0.20", "10.0.0.29", ipam.Discovery))
	for use, want := range map[string]trivet.Range{ipam.Known: n.Spec.Ranges[0], ipam.Discovery: n.Spec.Ranges[1]} {
		got, err := ipam.Pick(ipam.Request{Network: n, Use: use, MAC: "52:54:00:00:00:01", Hint: ip("10.0.0.99")}, none)
		if err != nil || got.Less(want.From) || want.To.Less(got) {
			t.Errorf("%s: %s, %v", use, got, err)
		}
	}
	n.Spec.Ranges = n.Spec.Ranges[:1]
	if _, err := ipam.Pick(ipam.Request{Network: n, Use: ipam.Discovery}, none); !errors.Is(err, trivet.ErrInvalid) {
		t.Errorf("without a range: %v", err)
	}
}

func TestAFullRangeIsNamed(t *testing.T) {
	n := network("10.0.0.0/24", span("10.0.0.10", "10.0.0.19", ""))
	_, err := ipam.Pick(ipam.Request{Network: n, Use: ipam.Known}, func(netip.Addr) bool { return true })
	if !errors.Is(err, ipam.ErrFull) || !strings.Contains(err.Error(), "10.0.0.10 to 10.0.0.19") {
		t.Error(err)
	}
}

func TestServersAndEdgesAreNeverPicked(t *testing.T) {
	n := network("10.0.0.0/29", span("10.0.0.0", "10.0.0.7", ""))
	n.Spec.Gateway, n.Spec.DNS, n.Spec.NTP = ip("10.0.0.1"), []netip.Addr{ip("10.0.0.2")}, []netip.Addr{ip("10.0.0.3")}
	given := map[netip.Addr]bool{}
	taken := func(a netip.Addr) bool { return given[a] }
	for i := range 3 {
		a, err := ipam.Pick(ipam.Request{Network: n, Use: ipam.Known, MAC: fmt.Sprint(i)}, taken)
		if err != nil {
			t.Fatal(err)
		}
		given[a] = true
	}
	for _, want := range []string{"10.0.0.4", "10.0.0.5", "10.0.0.6"} {
		if !given[ip(want)] {
			t.Errorf("%s was not picked: %v", want, given)
		}
	}
	if _, err := ipam.Pick(ipam.Request{Network: n, Use: ipam.Known}, taken); !errors.Is(err, ipam.ErrFull) {
		t.Error(err)
	}
	for a, want := range map[string]bool{
		"10.0.0.1": false, "10.0.0.0": false, "10.0.0.7": false, "10.0.0.5": true, "10.0.1.5": false,
	} {
		if ipam.Assignable(n, ip(a)) != want {
			t.Errorf("Assignable(%s) = %v", a, !want)
		}
	}
}

func TestReclaimTakesTheOldest(t *testing.T) {
	n := network("10.0.0.0/24", span("10.0.0.10", "10.0.0.19", ""))
	ended := map[string]time.Duration{}
	lease := func(name string, ago time.Duration, change func(*trivet.Address)) *trivet.Address {
		a := &trivet.Address{Meta: trivet.Meta{Name: name}, Spec: trivet.AddressSpec{Network: "n"}}
		a.Status.Lasts, ended[name] = trivet.Duration(time.Hour), ago
		if change != nil {
			change(a)
		}
		return a
	}
	all := []*trivet.Address{
		lease("10.0.0.10", time.Hour, nil),
		lease("10.0.0.11", 2*time.Hour, nil),
		lease("10.0.0.12", 9*time.Hour, func(a *trivet.Address) { a.Spec.Machine = "m1" }),
		lease("10.0.0.13", 9*time.Hour, func(a *trivet.Address) { a.Spec.Fixed = true }),
		lease("10.0.0.14", 9*time.Hour, func(a *trivet.Address) { a.Spec.Network = "other" }),
		lease("10.0.0.20", 9*time.Hour, nil), // not in the range
		lease("10.0.0.15", -time.Hour, nil),  // still leased
		lease("10.0.0.16", 9*time.Hour, func(a *trivet.Address) { a.Status.Lasts = 0 }),
	}
	overdue := func(a *trivet.Address) time.Duration { return ended[a.Name] }
	if got := ipam.Reclaim(n, ipam.Known, all, overdue); got == nil || got.Name != "10.0.0.11" {
		t.Errorf("got %v", got)
	}
	if got := ipam.Reclaim(n, ipam.Known, all[2:], overdue); got != nil {
		t.Errorf("got %v", got)
	}
}

// genNetwork makes a subnet with one to three ranges in it.
func genNetwork(t *rapid.T) *trivet.Network {
	bits := rapid.IntRange(22, 30).Draw(t, "bits")
	base := netip.AddrFrom4([4]byte{10, rapid.Byte().Draw(t, "b"), 0, 0})
	n := network(netip.PrefixFrom(base, bits).String())
	size := 1 << (32 - bits)
	at := func(i int) netip.Addr {
		b := base.As4()
		return netip.AddrFrom4([4]byte{b[0], b[1], byte(i >> 8), byte(i)})
	}
	for range rapid.IntRange(1, 3).Draw(t, "ranges") {
		from := rapid.IntRange(0, size-1).Draw(t, "from")
		to := rapid.IntRange(from, min(from+40, size-1)).Draw(t, "to")
		use := rapid.SampledFrom([]string{"", ipam.Known, ipam.Discovery}).Draw(t, "use")
		n.Spec.Ranges = append(n.Spec.Ranges, trivet.Range{From: at(from), To: at(to), Use: use})
	}
	n.Spec.Gateway = at(rapid.IntRange(0, size-1).Draw(t, "gateway"))
	return n
}

// Every address that is picked is allowed, free and the same on every head; all free ones are picked before ErrFull
// is returned.
func TestPickReturnsEveryFreeAddress(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := genNetwork(t)
		use := rapid.SampledFrom([]string{ipam.Known, ipam.Discovery}).Draw(t, "use")
		var allowed []netip.Addr
		for a := n.Spec.CIDR.Addr(); n.Spec.CIDR.Contains(a); a = a.Next() {
			if ipam.Fits(n, use, a) {
				allowed = append(allowed, a)
			}
		}
		given := map[netip.Addr]bool{}
		taken := func(a netip.Addr) bool { return given[a] }
		for i := 0; ; i++ {
			r := ipam.Request{Network: n, Use: use, MAC: fmt.Sprintf("%d-%d", i, rapid.Uint64().Draw(t, "mac"))}
			a, err := ipam.Pick(r, taken)
			if err != nil {
				if len(given) != len(allowed) {
					t.Fatalf("%v, but %d of %d were picked", err, len(given), len(allowed))
				}
				return
			}
			if again, _ := ipam.Pick(r, taken); again != a {
				t.Fatalf("picked %s, then %s", a, again)
			}
			r.Hint = a
			if again, _ := ipam.Pick(r, taken); again != a {
				t.Fatalf("hint %s was free, picked %s", a, again)
			}
			if given[a] || !slices.Contains(allowed, a) {
				t.Fatalf("%s was picked before or is not allowed", a)
			}
			given[a] = true
		}
	})
}

// The cost at a usual fill level does not grow with the number of taken addresses: it is counted in lookups.
func TestFewLookupsAtNineTenthsFull(t *testing.T) {
	n := network("10.0.0.0/16", span("10.0.1.0", "10.0.255.0", ""))
	full := 0.9 * float64(254*256)
	given := map[netip.Addr]bool{}
	questions := 0
	taken := func(a netip.Addr) bool { questions++; return given[a] }
	for i := range int(full) {
		a, err := ipam.Pick(ipam.Request{Network: n, Use: ipam.Known, MAC: fmt.Sprint("mac", i)}, taken)
		if err != nil {
			t.Fatal(err)
		}
		given[a] = true
	}
	if each := float64(questions) / full; each > 5 {
		t.Errorf("%.1f lookups for each address", each)
	}
}

func BenchmarkPick(b *testing.B) {
	n := network("10.0.0.0/8", span("10.0.1.0", "10.255.255.0", ""))
	for i := 0; b.Loop(); i++ {
		if _, err := ipam.Pick(ipam.Request{Network: n, Use: ipam.Known, MAC: "52:54:00:00:00:01"}, none); err != nil {
			b.Fatal(err)
		}
	}
}
