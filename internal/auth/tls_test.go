package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// day is far from the machine's clock, so that no test depends on that clock.
var day = time.Date(2031, 5, 1, 0, 0, 0, 0, time.UTC)

func fixed(t time.Time) func() time.Time { return func() time.Time { return t } }

func names(n ...string) func() []string { return func() []string { return n } }

// dial runs one handshake over loopback and returns the client's error.
func dial(t *testing.T, server, client *tls.Config) error {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if c, err := l.Accept(); err == nil {
			c.(*tls.Conn).Handshake()
			c.Close()
		}
	}()
	d := tls.Dialer{Config: client}
	conn, err := d.DialContext(context.Background(), "tcp", l.Addr().String())
	if err == nil {
		conn.Close()
	}
	l.Close()
	<-done
	return err
}

func clientTLS(t *testing.T, trust string) *tls.Config {
	t.Helper()
	cfg, err := client.TLSConfig(trust)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestPinnedClientTrustsOnlyItsCluster(t *testing.T) {
	ours, theirs := newKeys(t, "c1").CA, newKeys(t, "c1").CA
	server := ours.ServerCert(names("10.0.0.1"), fixed(day)).TLS()
	if err := dial(t, server, clientTLS(t, ours.Trust())); err != nil {
		t.Errorf("our pin: %v", err)
	}
	if err := dial(t, server, clientTLS(t, theirs.Trust())); !errors.Is(err, trivet.ErrUnauthenticated) {
		t.Errorf("another cluster's pin: %v; want ErrUnauthenticated", err)
	}
}

// The clock of a machine may have any time before its first contact, and so may the head's.
func TestPinnedClientNeedsNoClock(t *testing.T) {
	ca := newKeys(t, "c1").CA
	for _, now := range []time.Time{time.Unix(0, 0), day, time.Date(2150, 1, 1, 0, 0, 0, 0, time.UTC)} {
		client := clientTLS(t, ca.Trust())
		client.Time = fixed(time.Unix(0, 0))
		if err := dial(t, ca.ServerCert(names(), fixed(now)).TLS(), client); err != nil {
			t.Errorf("head's clock at %s: %v", now, err)
		}
	}
}

// forge issues a certificate that is not a head's under the chain that a head would send.
func forge(t *testing.T, ca *CA, signer *CA, change func(*x509.Certificate)) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := serverTemplate([]string{trivet.ServerName}, day)
	change(template)
	der, err := x509.CreateCertificate(rand.Reader, template, signer.certs[0], key.Public(), signer.key)
	if err != nil {
		t.Fatal(err)
	}
	chain := [][]byte{der, ca.certs[0].Raw}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: chain, PrivateKey: key}}}
}

func TestPinnedClientRefusesForgedChains(t *testing.T) {
	ca, other := newKeys(t, "c1").CA, newKeys(t, "c1").CA
	none := func(*x509.Certificate) {}
	cases := map[string]*tls.Config{
		"signed by another CA, ours sent along": forge(t, ca, other, none),
		"not for a head": forge(t, ca, ca,
			func(c *x509.Certificate) { c.DNSNames = []string{"witness.trivet.internal"} }),
		"not a server's": forge(t, ca, ca,
			func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }),
		"a witness's": forge(t, ca, ca,
			func(c *x509.Certificate) { c.Subject.OrganizationalUnit = []string{string(PeerWitness)} }),
	}
	for name, server := range cases {
		if err := dial(t, server, clientTLS(t, ca.Trust())); !errors.Is(err, trivet.ErrUnauthenticated) {
			t.Errorf("%s: %v; want ErrUnauthenticated", name, err)
		}
	}
	if err := dial(t, forge(t, ca, ca, none), clientTLS(t, ca.Trust())); err != nil {
		t.Errorf("forge without a change must pass, else the cases prove nothing: %v", err)
	}
}

// A witness has a server certificate for its address; a client that expects a head does not accept it.
func TestClientWithCARefusesAWitness(t *testing.T) {
	ca := newKeys(t, "c1").CA
	for role, want := range map[PeerRole]error{"": nil, PeerWitness: trivet.ErrUnauthenticated} {
		client := clientTLS(t, string(ca.PEM()))
		client.ServerName, client.Time = trivet.ServerName, fixed(day)
		server := forge(t, ca, ca, func(c *x509.Certificate) { c.Subject.OrganizationalUnit = []string{string(role)} })
		if err := dial(t, server, client); !errors.Is(err, want) {
			t.Errorf("role %q: %v; want %v", role, err, want)
		}
	}
}

func TestClientWithCAChecksNameAndTime(t *testing.T) {
	ca := newKeys(t, "c1").CA
	server := ca.ServerCert(names("127.0.0.1", "trivet.example"), fixed(day)).TLS()
	try := func(name string, now time.Time) error {
		client := clientTLS(t, string(ca.PEM()))
		client.ServerName, client.Time = name, fixed(now)
		return dial(t, server, client)
	}
	if err := errors.Join(try("", day), try("trivet.example", day), try("", day.Add(-300*24*time.Hour))); err != nil {
		t.Error(err)
	}
	var wrongName x509.HostnameError
	if err := try("other.example", day); !errors.As(err, &wrongName) {
		t.Errorf("another name: %v", err)
	}
	var expired x509.CertificateInvalidError
	if err := try("", day.Add(2*serverLife)); !errors.As(err, &expired) || expired.Reason != x509.Expired {
		t.Errorf("after its life: %v", err)
	}
	client := clientTLS(t, string(newKeys(t, "c1").CA.PEM()))
	client.Time = fixed(day)
	var unknown x509.UnknownAuthorityError
	if err := dial(t, server, client); !errors.As(err, &unknown) {
		t.Errorf("another cluster's CA: %v", err)
	}
}

func TestServerCertIsRenewed(t *testing.T) {
	now, san := day, []string{"10.0.0.1"}
	s := newKeys(t, "c1").CA.ServerCert(func() []string { return san }, func() time.Time { return now })
	get := func() *x509.Certificate {
		t.Helper()
		cert, err := s.GetCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		return cert.Leaf
	}
	first := get()
	now = now.Add(serverRenew - time.Second)
	if get() != first {
		t.Error("reissued too early")
	}
	now = now.Add(time.Second)
	second := get()
	if second == first || !second.NotAfter.After(first.NotAfter) {
		t.Error("not renewed after two thirds of its life")
	}
	san = []string{"10.0.0.2", "2001:db8::1", "10.0.0.2", "h.example"}
	third := get()
	if len(third.IPAddresses) != 2 || !third.IPAddresses[0].Equal(net.IPv4(10, 0, 0, 2)) ||
		!slices.Contains(third.DNSNames, "h.example") {
		t.Errorf("names after a change: %v %v", third.IPAddresses, third.DNSNames)
	}
	now = now.Add(-10 * year)
	if fourth := get(); fourth == third || fourth.NotBefore.After(now) {
		t.Error("not reissued after the clock went back")
	}
	if life := third.NotAfter.Sub(third.NotBefore); life > 825*24*time.Hour {
		t.Errorf("whole life %s is over what clients accept", life)
	}
	last := get()
	san = make([]string, maxNames+1)
	for i := range san {
		san[i] = strings.Repeat("n", i+1)
	}
	if get() != last {
		t.Error("a renewal that fails must keep the old certificate")
	}
}

// Other programs can use the CA, too.
func TestCurlAcceptsTheCA(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Fatal("curl is missing: apt-get install curl")
	}
	ca := newKeys(t, "c1").CA
	l, err := tls.Listen("tcp", "127.0.0.1:0", ca.ServerCert(names("127.0.0.1"), time.Now).TLS())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Read(make([]byte, 4096))
			c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"))
			c.Close()
		}
	}()
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, ca.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(curl, "-sS", "--http1.1", "--noproxy", "*", "--cacert", file,
		"https://"+l.Addr().String()).CombinedOutput()
	if err != nil || string(out) != "ok" {
		t.Errorf("curl: %v: %s", err, out)
	}
	l.Close()
	<-done
}

func notACA(t *testing.T) []byte {
	t.Helper()
	cert, err := newKeys(t, "c1").CA.issueServer([]string{trivet.ServerName}, day)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]})
}

func TestTLSConfigRefusesBadTrust(t *testing.T) {
	for _, trust := range []string{"", "sha256:", "sha256:abcd", "sha256:" + strings.Repeat("G", 64),
		"sha256:" + strings.Repeat("A", 64), "md5:00", string(notACA(t))} {
		if _, err := client.TLSConfig(trust); !errors.Is(err, trivet.ErrInvalid) {
			t.Errorf("TLSConfig(%.80q): %v; want ErrInvalid", trust, err)
		}
	}
}
