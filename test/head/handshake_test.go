package head_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/testhead"
)

// Clients that only begin or only complete TLS handshakes hold few connections of the API: per address, and in total,
// however many addresses they have. The share of recognised callers is not theirs: the administrator is served.
func TestHandshakesAreBounded(t *testing.T) {
	const perAddress, total = 4, 17 // of so many open files
	h := &head{&testhead.Head{T: t, Name: "the head", Dir: filepath.Join(t.TempDir(), "data"),
		Address: testhead.NewAddress()}}
	h.Prefix = []string{"prlimit", fmt.Sprintf("--nofile=%d:%d", openFiles, openFiles)}
	h.Up("--connections-per-address", strconv.Itoa(perAddress))
	h.Apply(site)
	trust, err := client.TLSConfig(h.Credential().Trust)
	if err != nil {
		t.Fatal(err)
	}
	from := func(address string) func() (net.Conn, error) {
		d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
		return func() (net.Conn, error) { return d.DialContext(t.Context(), "tcp", h.Address+":7480") }
	}
	complete := func(address string) func() (net.Conn, error) {
		d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
		return func() (net.Conn, error) { return tls.DialWithDialer(d, "tcp", h.Address+":7480", trust) }
	}
	const begin = "\x16\x03\x01\x02"
	one := testhead.NewAddress()
	attack(t, 100, from(one), []byte(begin))
	attack(t, 100, complete(one), nil)
	if n := h.unknownConnections(t); n < 1 || n > perAddress+1 { // and perhaps the one that asks
		t.Errorf("one address holds %d connections; the limit is %d", n, perAddress)
	}
	for range 20 {
		another := testhead.NewAddress()
		attack(t, 2*perAddress, from(another), []byte(begin))
		attack(t, 2*perAddress, complete(another), nil)
	}
	if n := h.unknownConnections(t); n < 1 || n > total {
		t.Errorf("20 addresses hold %d connections; the limit is %d", n, total)
	}
	h.mustRead()
}

// An address that completes handshakes one after the other is limited in rate; other addresses are not, and neither is
// one at which a caller has a token.
func TestHandshakesAreLimitedInRate(t *testing.T) {
	const burst, perSecond = 64, 4 // of so many connections per address
	h := &head{&testhead.Head{T: t, Name: "the head", Dir: filepath.Join(t.TempDir(), "data"),
		Address: testhead.NewAddress()}}
	h.Up("--connections-per-address", strconv.Itoa(burst/4))
	h.Apply(site)
	trust, err := client.TLSConfig(h.Credential().Trust)
	if err != nil {
		t.Fatal(err)
	}
	completed := func(address string, attempts int) (n int) {
		d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
		for range attempts {
			if conn, err := tls.DialWithDialer(d, "tcp", h.Address+":7480", trust); err == nil {
				n++
				_ = conn.Close()
			}
		}
		return n
	}
	begin := time.Now()
	n := completed(testhead.NewAddress(), 5*burst)
	if limit := burst + int(time.Since(begin).Seconds()*perSecond) + 1; n < burst || n > limit && limit < 5*burst {
		t.Errorf("one address completed %d handshakes; %d to %d are within its rate", n, burst, limit)
	}
	if n := completed(testhead.NewAddress(), burst); n != burst {
		t.Errorf("another address completed %d handshakes of %d", n, burst)
	}
	if h.metric(t, `trivet_limit_exceeded_total{port="api",result="rate"} `) == 0 {
		t.Error("no handshake is counted as refused")
	}
	h.mustRead() // by a token, from 127.0.0.1
	if n := completed("127.0.0.1", 2*burst); n != 2*burst {
		t.Errorf("an address with a token completed %d handshakes of %d", n, 2*burst)
	}
}

// unknownConnections returns how many connections of callers that it does not recognise the head's API has.
func (h *head) unknownConnections(t *testing.T) int {
	t.Helper()
	return h.metric(t, `trivet_limit_entries{caller="unknown",port="api"} `)
}

// metric returns the value of a metric, which is given with its labels.
func (h *head) metric(t *testing.T, name string) int {
	t.Helper()
	req := h.request(t.Context(), http.MethodGet, "/metrics", nil)
	resp, err := h.rawAPI().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name); ok {
			n, err := strconv.Atoi(value)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("%s: there is no such metric", resp.Status)
	return 0
}
