package netboot_test

import (
	"net/http"
	"net/netip"
	"net/url"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/trivet-project/trivet/internal/dhcp"
)

// Whatever a client sends, an address that it gets is one of the network's, and no other client's.
func FuzzServeDHCP(f *testing.F) {
	r := newFixture(f)
	for _, how := range [][]dhcpv4.Modifier{biosPXE, uefiPXE, uefiHTTP, ipxe, system} {
		for _, kind := range []dhcp.Type{dhcp.Discover, dhcp.Request, dhcp.Inform, dhcp.Release, dhcp.Decline} {
			f.Add(raw(f, kind, knownMAC, how...), false)
			f.Add(raw(f, kind, unknownMAC, with(how, wanted("10.0.0.160"), server("10.0.0.1"))...), false)
			f.Add(raw(f, kind, fixedMAC, with(how, wanted("10.0.0.20"), server("10.0.0.1"))...), true)
		}
	}
	lan := netip.MustParsePrefix("10.0.0.0/24")
	f.Fuzz(func(t *testing.T, packet []byte, proxy bool) {
		q, err := dhcp.ParsePacket(packet)
		if err != nil {
			return
		}
		q.Local, q.Port, q.Received = head, dhcp.ServerPort, time.Now()
		if proxy {
			q.Port = dhcp.ProxyPort
		}
		reply := r.ServeDHCP(t.Context(), q)
		if reply == nil || !reply.Address.IsValid() {
			return
		}
		if !lan.Contains(reply.Address) || reply.Address == head || reply.Address == ip("10.0.0.254") {
			t.Errorf("gave %s", reply.Address)
		}
		a, err := r.Addresses.Get(reply.Address.String())
		if err == nil && a.Spec.MAC != q.MAC().String() && reply.Type == dhcp.Ack {
			t.Errorf("assigned %s to %s; it is %s's", reply.Address, q.MAC(), a.Spec.MAC)
		}
	})
}

// Whatever path is requested, the status is one that the server defines, and never an internal error.
func FuzzServeHTTP(f *testing.F) {
	r := newFixture(f)
	for _, path := range []string{"/boot/script/52-54-00-00-00-01", "/latest/meta-data/public-keys/0/openssh-key",
		"/latest/user-data",
		"/ipxe/snponly.efi", "/phone-home/tb1~x", "/boot/initrd/a/b", "/blob/sha256:00", "/livez", "/../..", "//",
		"/ipxe/\x00"} {
		f.Add("GET", path)
		f.Add("POST", path)
	}
	f.Fuzz(func(t *testing.T, method, path string) {
		for _, c := range method {
			if c < 'A' || c > 'Z' {
				return
			}
		}
		resp := r.ask(method, "/"+(&url.URL{Path: path}).EscapedPath(), "10.0.0.77")
		if resp.StatusCode >= http.StatusInternalServerError {
			t.Errorf("%s %q: %s", method, path, resp.Status)
		}
	})
}
