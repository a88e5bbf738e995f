package testhead

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/trivet-project/trivet/internal/dhcp"
	"github.com/trivet-project/trivet/test/tftpclient"
)

// Lease requests the address of a machine from a head on loopback, as iPXE does behind a relay.
func (h *Head) Lease(mac string) (*dhcp.Lease, error) {
	hardware, err := net.ParseMAC(mac)
	if err != nil {
		return nil, err
	}
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	server := net.UDPAddrFromAddrPort(netip.MustParseAddrPort(h.Address + ":7067"))
	return dhcp.Exchange(h.Context(), conn, server, dhcp.ClientConfig{
		MAC: hardware, Relay: netip.MustParseAddr("127.0.0.1"),
		Options: []dhcp.Option{
			dhcp.Text(dhcp.OptClass, "PXEClient:Arch:00000:UNDI:002001"), dhcp.Text(dhcp.OptUserClass, "iPXE"),
			{Code: dhcp.OptArch, Value: []byte{0, 0}},
		},
	})
}

// MustBoot gets an address, a boot file by TFTP and the boot script of a known machine, as its firmware does, and
// returns the script.
func (h *Head) MustBoot(mac string) (script string) {
	h.Helper()
	lease, err := h.Lease(mac)
	if err != nil || !strings.Contains(lease.BootFile, "/boot/script/") {
		h.Errorf("%s: DHCP: %v, %v", h.Name, lease, err)
		return ""
	}
	var file bytes.Buffer
	server := netip.MustParseAddrPort(h.Address + ":7069")
	n, err := tftpclient.Get(h.Context(), server, BootFile, &file, tftpclient.Options{})
	if err != nil || n != int64(BootFileRepeat*len(BootFile)) {
		h.Errorf("%s: TFTP: %d bytes, %v", h.Name, n, err)
	}
	dialer := &net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(lease.Address.Addr(), 0))}
	from := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
	resp, err := from.Get(h.BootURL() + "/boot/script/" + mac)
	if err != nil {
		h.Errorf("%s: boot script: %v", h.Name, err)
		return ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || !strings.HasPrefix(string(text), "#!ipxe\n") {
		h.Errorf("%s: boot script: %s, %q, %v", h.Name, resp.Status, text, err)
	}
	return string(text)
}
