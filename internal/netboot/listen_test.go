package netboot_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/limit"
	"github.com/trivet-project/trivet/internal/netboot"
	"github.com/trivet-project/trivet/internal/store"
)

// listen serves the boot server on loopback, in a network of the site, until the test ends.
func (r *fixture) listen(t *testing.T, c netboot.Config) (address string) {
	t.Helper()
	c.TLS = r.keys.BootTLS(func() []string { return []string{"127.0.0.1"} })
	r.open(t, c)
	r.write(t, func(tx *store.Tx) error {
		return r.Networks.In(tx).Create(&trivet.Network{Meta: trivet.Meta{Name: "loopback"},
			Spec: trivet.NetworkSpec{CIDR: netip.MustParsePrefix("127.0.0.0/24")}})
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	web := r.HTTPServer()
	r.until(t, func(ctx context.Context) error {
		defer context.AfterFunc(ctx, func() { web.Close() })()
		return web.Serve(r.Server.Listen(outside{l}))
	})
	return l.Addr().String()
}

// outside makes connections from 127.0.1.1 come from an address that is in no network.
type outside struct{ net.Listener }

type outsideConn struct{ *net.TCPConn }

func (outsideConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 4711} }

func (l outside) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil && strings.HasPrefix(conn.RemoteAddr().String(), "127.0.1.1:") {
		return outsideConn{conn.(*net.TCPConn)}, nil
	}
	return conn, err
}

// firmware returns a client that trusts the boot CA of these keys.
func firmware(t *testing.T, keys *auth.Keys, from string) *http.Client {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(keys.BootCA().PEM())
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	transport := &http.Transport{DialContext: d.DialContext, TLSClientConfig: &tls.Config{RootCAs: pool}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// handshakes returns how many handshakes had a result.
func handshakes(t *testing.T, reg prometheus.Gatherer, result string) int {
	t.Helper()
	families, err := reg.Gather()
	must(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "trivet_netboot_handshakes_total" && m.GetLabel()[0].GetValue() == result {
				return int(m.GetCounter().GetValue())
			}
		}
	}
	return 0
}

// One port serves HTTP and HTTPS. A client that does not trust the CA sends no request, and one outside of the site's
// networks gets no handshake.
func TestHTTPSAtTheSamePort(t *testing.T) {
	r, reg := newFixture(t), prometheus.NewRegistry()
	address := r.listen(t, netboot.Config{Registry: reg, Handshakes: limit.NewRate(1e-9, 2, 1)})
	get := func(c *http.Client, scheme string) error {
		resp, err := c.Get(scheme + "://" + address + "/ipxe/snponly.efi")
		if err != nil {
			return err
		}
		if text := body(t, resp); resp.StatusCode != http.StatusOK || !strings.HasPrefix(text, "MZ") {
			return fmt.Errorf("%s, %d bytes", resp.Status, len(text))
		}
		return nil
	}
	machine := firmware(t, r.keys, "127.0.0.1")
	for _, scheme := range []string{"http", "https", "http"} {
		if err := get(machine, scheme); err != nil {
			t.Errorf("%s: %v", scheme, err)
		}
	}
	other, err := auth.Init(t.TempDir()+"/keys", "test")
	must(t, err)
	if err := get(firmware(t, other, "127.0.0.1"), "https"); !errors.As(err, new(*tls.CertificateVerificationError)) {
		t.Errorf("another CA: %v", err)
	}
	if err := get(firmware(t, r.keys, "127.0.0.1"), "https"); err == nil {
		t.Error("a third handshake is within a rate of two")
	}
	if err := get(firmware(t, r.keys, "127.0.1.1"), "https"); err == nil {
		t.Error("a host in no network completed a handshake")
	}
	if err := get(firmware(t, r.keys, "127.0.0.2"), "https"); err != nil {
		t.Errorf("another address: %v", err)
	}
	for result, want := range map[string]int{"completed": 2, "failed": 1, "refused": 2} {
		got := handshakes(t, reg, result)
		for end := time.Now().Add(time.Minute); got < want && time.Now().Before(end); got = handshakes(t, reg, result) {
			time.Sleep(10 * time.Millisecond) // the client knows it first
		}
		if got != want {
			t.Errorf("%d handshakes are %s, want %d", got, result, want)
		}
	}
}

// A script that is fetched by HTTPS names the heads by HTTPS.
func TestScriptByHTTPS(t *testing.T) {
	r := newFixture(t)
	r.withPlatform(t)
	address := r.listen(t, netboot.Config{})
	r.write(t, func(tx *store.Tx) error {
		m, err := r.Machines.In(tx).Get("m2")
		must(t, err)
		m.Spec.NICs[0].Address = ip("127.0.0.1")
		return r.Machines.In(tx).Put(m)
	})
	for _, scheme := range []string{"http", "https"} {
		resp, err := firmware(t, r.keys, "127.0.0.1").Get(
			scheme + "://" + address + "/boot/script/" + strings.ReplaceAll(fixedMAC, ":", "-"))
		must(t, err)
		text := body(t, resp)
		for _, want := range []string{"set head " + scheme + "://" + address, "set head " + scheme + "://10.0.0.2:8080"} {
			if !strings.Contains(text, want+"\n") {
				t.Errorf("%s: no %q in\n%s", scheme, want, text)
			}
		}
	}
}
