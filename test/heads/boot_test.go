package heads_test

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

const (
	knownMAC = "52:54:00:00:00:01"
	bootFile = "undionly.kpxe"
)

// boots gets an address, a program by TFTP, and a script for the known machine, from this head.
func (h *head) boots() (script string) {
	h.Helper()
	mac, err := net.ParseMAC(knownMAC)
	if err != nil {
		h.Fatal(err)
	}
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		h.Fatal(err)
	}
	defer conn.Close()
	server := net.UDPAddrFromAddrPort(netip.MustParseAddrPort(h.host + ":7067"))
	lease, err := dhcp.Exchange(h.Context(), conn, server, dhcp.ClientConfig{MAC: mac, Relay: netip.MustParseAddr("127.0.0.1"),
		Options: []dhcp.Option{dhcp.Text(dhcp.OptClass, "PXEClient:Arch:00000:UNDI:002001"), dhcp.Text(dhcp.OptUserClass, "iPXE"),
			{Code: dhcp.OptArch, Value: []byte{0, 0}}}})
	if err != nil || !strings.Contains(lease.BootFile, "/boot/script/") {
		h.Errorf("%s: DHCP: %v, %v", h.name, lease, err)
	}
	var program bytes.Buffer
	n, err := tftpclient.Get(h.Context(), netip.MustParseAddrPort(h.host+":7069"), bootFile, &program, tftpclient.Options{})
	if err != nil || n != int64(3000*len(bootFile)) {
		h.Errorf("%s: TFTP: %d bytes, %v", h.name, n, err)
	}
	resp, err := http.Get("http://" + h.host + ":7481/boot/script/" + knownMAC)
	if err != nil {
		h.Errorf("%s: boot script: %v", h.name, err)
		return ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || !strings.HasPrefix(string(text), "#!ipxe\n") {
		h.Errorf("%s: boot script: %s, %q, %v", h.name, resp.Status, text, err)
	}
	return string(text)
}
