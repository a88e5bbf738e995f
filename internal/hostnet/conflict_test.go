package hostnet

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/storetest"
)

// state returns the permanent addresses and the routes of a host.
func (b host) state(t *testing.T) string {
	return run(t, "ip -n %s -o -4 address show scope global permanent", b) + run(t, "ip -n %s route show", b)
}

// refused is New's error in a host, for an address on eth0.
func (b host) refused(t *testing.T, address string) (err error) {
	b.inside(t, func() error {
		var v *VIP
		if v, err = New(Config{Address: netip.MustParsePrefix(address), Interface: "eth0",
			Log: slog.New(slog.DiscardHandler)}); err == nil {
			v.Close()
		}
		return nil
	})
	return err
}

// An address that the host has by other means is refused, and stays with its routes.
func TestOwnAddressesAreKept(t *testing.T) {
	t.Parallel()
	b := newHosts(t)[0]
	run(t, "ip -n %s route add default via 10.98.0.254", b)
	run(t, "ip -n %s link add other0 type bridge", b)
	run(t, "ip -n %s address add 10.98.0.7/32 dev other0", b)
	run(t, "ip -n %s address add 10.98.0.8/24 dev eth0 valid_lft 600 preferred_lft 600", b) // as a DHCP client does
	before := b.state(t)
	for address, where := range map[string]string{
		"10.98.0.1/24": "10.98.0.1/24 on eth0", "10.98.0.1/32": "10.98.0.1/24 on eth0",
		"10.98.0.7/24": "10.98.0.7/32 on other0", "10.98.0.7/32": "10.98.0.7/32 on other0",
		"10.98.0.8/24": "10.98.0.8/24 on eth0",
	} {
		err := b.refused(t, address)
		if !errors.Is(err, trivet.ErrConflict) || !strings.Contains(err.Error(), where) ||
			!strings.Contains(err.Error(), "give --vip") {
			t.Errorf("%s: %v", address, err)
		}
	}
	if after := b.state(t); after != before {
		t.Errorf("the host had\n%s\nand has\n%s", before, after)
	}
	if leased := run(t, "ip -n %s address show dev eth0", b); !strings.Contains(leased, "10.98.0.8/24") {
		t.Errorf("the address by DHCP is gone: %s", leased)
	}
}

// An address outside the networks of the interface is refused.
func TestAddressOutsideTheNetworks(t *testing.T) {
	t.Parallel()
	b := newHosts(t)[0]
	for _, address := range []string{"10.97.0.9/24", "10.97.0.9/32", "10.98.0.9/25", "10.98.0.9/16",
		"10.98.0.255/24", "10.98.0.0/24", "10.98.0.255/32", "10.98.0.0/32"} {
		if err := b.refused(t, address); !errors.Is(err, trivet.ErrInvalid) ||
			!strings.Contains(err.Error(), "give --vip") {
			t.Errorf("%s: %v", address, err)
		}
	}
	for _, address := range []string{"10.98.0.9/24", "10.98.0.9/32"} {
		if err := b.refused(t, address); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
	run(t, "ip -n %s address add 10.98.0.9/32 dev eth0 valid_lft 1 preferred_lft 0", b) // a process of ours was killed
	if err := b.refused(t, "10.98.0.9/24"); err != nil || b.has(t) {
		t.Errorf("the address that a killed process has left: %v", err)
	}
}

// A program that sets the address while a head has it keeps it. The host's own address, removed and added
// again, stays.
func TestAddressesChangeMeanwhile(t *testing.T) {
	t.Parallel()
	b := newHosts(t)[0]
	m := storetest.Member(t)
	for _, set := range []string{"replace 10.98.0.9/32 dev eth0 valid_lft forever preferred_lft forever",
		"add 10.98.0.9/24 dev eth0"} {
		h := newHead(t, b, m)
		until(t, "the head has the address", h.Held)
		run(t, "ip -n %s address %s", b, set)
		until(t, "the head removes it", func() bool { return !h.Held() })
		before := b.state(t)
		h.stop()
		if after := b.state(t); after != before || !strings.Contains(after, shared.Addr().String()) {
			t.Errorf("after %s the host had\n%s\nand has\n%s", set, before, after)
		}
		run(t, "ip -n %s address delete %s dev eth0", b, strings.Fields(set)[1])
	}
	h := newHead(t, b, m)
	until(t, "the head has the address", h.Held)
	before := b.state(t)
	run(t, "ip -n %s address delete 10.98.0.1/24 dev eth0", b)
	until(t, "the head removes it", func() bool { return !h.Held() })
	run(t, "ip -n %s address add 10.98.0.1/24 dev eth0", b)
	h.stop()
	if after := b.state(t); after != before || b.has(t) {
		t.Errorf("the host had\n%s\nand has\n%s", before, after)
	}
}

// lines is a log.
type lines struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) contains(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// An address that another host has is not taken before that host removes it.
func TestAnotherHostHasTheAddress(t *testing.T) {
	t.Parallel()
	hosts := newHosts(t)
	run(t, "ip -n %s address add %s dev eth0", hosts[2], shared)
	var log lines
	h := newHeadWithLog(t, hosts[0], storetest.Member(t), &log)
	until(t, "the host's MAC is logged", func() bool { return log.contains(hosts[2].mac(t)) })
	if h.Held() || hosts[0].has(t) || log.contains("took the shared address") {
		t.Error("two hosts have the address")
	}
	run(t, "ip -n %s address delete %s dev eth0", hosts[2], shared)
	until(t, "the head has the address", h.Held)
}

// A head that still answers until its kernel removes the address does not prevent the next one from taking it.
func TestExpiringAddressIsWaitedFor(t *testing.T) {
	t.Parallel()
	hosts := newHosts(t)
	m := storetest.Member(t)
	var log lines
	run(t, "ip -n %s address add %s/32 dev eth0 valid_lft 1 preferred_lft 0", hosts[1], shared.Addr())
	h := newHeadWithLog(t, hosts[0], m, &log)
	until(t, "the head has the address", h.Held)
	if log.contains("cannot take") || hosts[1].has(t) {
		t.Errorf("two hosts have the address, or: %s", log.text.String())
	}
}

func TestClaim(t *testing.T) {
	mac, a := net.HardwareAddr{2, 0, 0, 0, 0, 1}, shared.Addr()
	for name, c := range map[string]struct {
		packet []byte
		want   bool
	}{
		"gratuitous": {packet(arpRequest, mac, a, a), true},
		"an answer":  {packet(arpReply, mac, a, netip.IPv4Unspecified()), true},
		"padded":     {append(packet(arpReply, mac, a, a), make([]byte, 18)...), true},
		"a probe":    {packet(arpRequest, mac, netip.IPv4Unspecified(), a), false},
		"a question": {packet(arpRequest, mac, a.Next(), a), false},
		"RARP":       {packet(4, mac, a, a), false},
		"cut off":    {packet(arpReply, mac, a, a)[:arpLen-1], false},
		"nothing":    {nil, false},
	} {
		if got := claim(c.packet, a); (got != nil) != c.want || c.want && !bytes.Equal(got, mac) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func FuzzClaim(f *testing.F) {
	f.Add(packet(arpReply, net.HardwareAddr{2, 0, 0, 0, 0, 1}, shared.Addr(), shared.Addr()))
	f.Fuzz(func(t *testing.T, b []byte) {
		if mac := claim(b, shared.Addr()); mac != nil &&
			!bytes.Contains(b, append(mac[:6:6], shared.Addr().AsSlice()...)) {
			t.Errorf("%x claims for %s", b, mac)
		}
	})
}
