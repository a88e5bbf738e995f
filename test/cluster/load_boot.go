package cluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/trivet-project/trivet/internal/dhcp"
)

// requestAddress requests an address from all heads, as a client at the operator's port.
func (l *load) requestAddress(ctx context.Context, mac string) (*dhcp.Lease, error) {
	call := l.history.now()
	got, err := requestLease(ctx, mac, operator, l.site.addresses())
	if err == nil {
		l.history.note(func(h *History) {
			h.Leases = append(h.Leases, lease{mac, got.Address.Addr().String(), got.Server.String(), call,
				l.history.now()})
		})
	}
	return got, err
}

// lease requests addresses: for a known machine, and for unknown clients.
func (l *load) lease(id int) {
	dice := l.dice(fmt.Sprint("client", id))
	for n := 0; !l.over(); n++ {
		mac := machineMAC(2, id)
		if dice.IntN(4) == 0 {
			mac = machineMAC(0x80+id, dice.IntN(200))
		}
		_, _ = l.requestAddress(l.ctx, mac) // the boot pulse measures missing answers
		l.pause(time.Duration(100+dice.IntN(300)) * time.Millisecond)
	}
}

// bootPulse boots a known machine up to its script, again and again: the time without success is the boot gap.
func (l *load) bootPulse() {
	var own netip.Addr
	for !l.over() {
		if err := l.boot(&own); err == nil {
			l.history.note(func(h *History) { h.Boots = append(h.Boots, l.history.now()) })
		}
		l.pause(100 * time.Millisecond)
	}
	if own.IsValid() {
		_ = ip("address", "delete", own.String()+"/32", "dev", "lo")
	}
}

// boot boots up to the script, from the leased address, which this host has as its own.
func (l *load) boot(own *netip.Addr) error {
	got, err := l.requestAddress(l.ctx, pulseMAC)
	if err != nil {
		return err
	}
	if a := got.Address.Addr(); *own != a {
		if err := addAddress(a); err != nil {
			return err
		}
		*own = a
	}
	dialer := &net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(*own, 0))}
	fetch := &http.Client{Timeout: 2 * time.Second,
		Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
	resp, err := fetch.Get(got.BootFile)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err == nil && !strings.HasPrefix(string(text), "#!ipxe") {
		err = fmt.Errorf("%s: %s", resp.Status, text)
	}
	return err
}

// addAddress gives this host an address.
func addAddress(a netip.Addr) error { return ip("address", "replace", a.String()+"/32", "dev", "lo") }
