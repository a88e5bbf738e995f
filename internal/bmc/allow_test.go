package bmc_test

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/bmc"
	"github.com/trivet-project/trivet/internal/bmc/bmctest"
)

// A host that the secret does not name gets not even a connection: not by its address, by a name for it, or by both
// names of an address.
func TestPasswordIsSentToAllowedAddressesOnly(t *testing.T) {
	tcp, udp := listen(t)
	for _, protocol := range []string{bmc.Redfish, bmc.IPMI} {
		_, port, _ := net.SplitHostPort(tcp.Addr().String())
		if protocol == bmc.IPMI {
			_, port, _ = net.SplitHostPort(udp.LocalAddr().String())
		}
		for _, host := range []string{"127.0.0.1", "localhost", "::ffff:127.0.0.1"} {
			for name, allows := range map[string]func(netip.Addr) bool{
				"another": netip.MustParsePrefix("10.0.8.0/24").Contains, "none": nil,
			} {
				cfg := bmc.Config{Protocol: protocol, Address: net.JoinHostPort(host, port), User: "root",
					Password: "calvin", Allows: allows, Insecure: true}
				_, err := bmc.Open(t.Context(), cfg)
				if !errors.Is(err, trivet.ErrForbidden) || !strings.Contains(err.Error(), "spec.addresses") {
					t.Errorf("%s %s, %s allowed: %v", protocol, host, name, err)
				}
			}
		}
	}
	_ = udp.SetReadDeadline(time.Now())
	if n, _, err := udp.ReadFrom(make([]byte, 1)); err == nil {
		t.Errorf("the host received %d bytes", n)
	}
	_ = tcp.SetDeadline(time.Now())
	if c, err := tcp.Accept(); err == nil {
		t.Errorf("the host got a connection: %v", c.LocalAddr())
	}
}

func listen(t *testing.T) (*net.TCPListener, net.PacketConn) {
	t.Helper()
	tcp, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		tcp.Close()
		udp.Close()
	})
	return tcp, udp
}

// The addresses are checked at each connection, not at the login only.
func TestAddressIsCheckedAtEachConnection(t *testing.T) {
	cfg := bmctest.Redfish(t, bmctest.NewBox())
	asked := 0
	cfg.Allows = func(netip.Addr) bool { asked++; return asked == 1 }
	c, err := bmc.Open(t.Context(), cfg)
	if err == nil {
		bmc.DropConnections(c)
		_, err = c.Power(t.Context())
	}
	if !errors.Is(err, trivet.ErrForbidden) || asked < 2 {
		t.Errorf("after a name moved to another address: %v, checked %d times", err, asked)
	}
}
