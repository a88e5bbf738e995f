package netboot_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/boot"
	"github.com/trivet-project/trivet/internal/dhcp"
	"github.com/trivet-project/trivet/internal/store"
)

// probing is the packet of a head's probe, from its address.
func probing(t testing.TB, from string) *dhcp.Packet {
	r := packet(t, dhcp.Discover, dhcp.ProbeMAC, with(uefiPXE, option(77, "trivet.probe"),
		dhcpv4.WithRelay(ip(from).AsSlice()), option(82, "\x13\x00"))...)
	r.Unicast = true
	return r
}

func (r *fixture) heads(t testing.TB) {
	r.write(t, func(tx *store.Tx) error {
		for name, addr := range map[string]string{"head0": "10.0.0.1", "head1": "10.0.0.2"} {
			h := &trivet.Head{Meta: trivet.Meta{Name: name}, Status: trivet.HeadStatus{State: trivet.HeadMember}}
			h.Status.DHCP = append(h.Status.DHCP, ip(addr))
			if err := r.Heads.In(tx).Create(h); err != nil {
				return err
			}
		}
		return nil
	})
}

// A probe of a head is answered as firmware is, whichever head owns the client, and without an address: none is
// offered, bound or noted for it, and nothing is written. A probe of another host has no answer.
func TestProbe(t *testing.T) {
	r := newFixture(t)
	r.heads(t)
	before := r.Store.Revision()
	for _, from := range []string{"10.0.0.1", "10.0.0.2"} {
		reply := r.ServeDHCP(t.Context(), probing(t, from))
		if reply == nil || reply.Type != dhcp.Offer || reply.Address.IsValid() || reply.BootFile != "snponly.efi" ||
			reply.Server != head || reply.NextServer != head {
			t.Errorf("from %s: %+v", from, reply)
		}
	}
	if reply := r.ServeDHCP(t.Context(), probing(t, "10.0.0.77")); reply != nil {
		t.Errorf("a host that is no head: %+v", reply)
	}
	if got := r.Store.Revision(); got != before {
		t.Errorf("%d revisions were written", got-before)
	}
	if all := r.Addresses.Names(); len(all) > 0 {
		t.Errorf("addresses %q", all)
	}
	// a machine of the same MAC is a machine
	if reply := r.ServeDHCP(t.Context(), packet(t, dhcp.Discover, dhcp.ProbeMAC, uefiPXE...)); reply == nil ||
		!reply.Address.IsValid() {
		t.Errorf("a machine with the MAC: %+v", reply)
	}
}

// Where DHCP is off there is no answer; where unknown machines are ignored there is one, and as a proxy, too.
func TestProbeByNetwork(t *testing.T) {
	for _, c := range []struct {
		change func(n *trivet.NetworkSpec)
		answer bool
	}{
		{func(n *trivet.NetworkSpec) { n.DHCP = "off" }, false},
		{func(n *trivet.NetworkSpec) { n.DHCP = "proxy" }, true},
		{func(n *trivet.NetworkSpec) { n.Unknown = "ignore" }, true},
		{func(n *trivet.NetworkSpec) { n.Ranges = nil }, true},
	} {
		r := newFixture(t)
		r.heads(t)
		r.write(t, func(tx *store.Tx) error {
			n, err := r.Networks.In(tx).Get("lan")
			if err != nil {
				return err
			}
			c.change(&n.Spec)
			return r.Networks.In(tx).Put(n)
		})
		reply := r.ServeDHCP(t.Context(), probing(t, "10.0.0.2"))
		if (reply != nil) != c.answer || reply != nil && reply.BootFile == "" {
			t.Errorf("%+v", reply)
		}
	}
}

// A head gets a script for its probe, without a token; another host gets none.
func TestProbeScript(t *testing.T) {
	r := newFixture(t)
	r.heads(t)
	for from, want := range map[string]int{"10.0.0.2:4000": http.StatusOK, "10.0.0.77:4000": http.StatusForbidden} {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, boot.ScriptPath(dhcp.ProbeMAC), nil)
		req.RemoteAddr = from
		w := httptest.NewRecorder()
		r.ServeHTTP(w, req)
		text := w.Body.String()
		if w.Code != want || (want == http.StatusOK) != strings.HasPrefix(text, "#!ipxe\n") || strings.Contains(text, "tb1~") {
			t.Errorf("from %s: %d %q", from, w.Code, text)
		}
	}
}
