package head_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/testhead"
)

// openFiles are the files that a head with a low limit may open. Most systems permit more.
const openFiles = 1024

// newHeadWithFiles starts a head that may open only so many files, as in a container or an old system.
func newHeadWithFiles(t *testing.T, files int) *head {
	t.Helper()
	h := &head{&testhead.Head{T: t, Name: "the head", Dir: filepath.Join(t.TempDir(), "data"),
		Address: testhead.NewAddress()}}
	h.Prefix = []string{"prlimit", fmt.Sprintf("--nofile=%d:%d", files, files)}
	h.Up()
	h.Apply(site)
	return h
}

// attack opens n connections and sends a text by each, in parallel. What the head refuses or closes is not an error.
// The connections are open until the test ends.
func attack(t *testing.T, n int, dial func() (net.Conn, error), text []byte) {
	t.Helper()
	var attackers sync.WaitGroup
	next := make(chan struct{}, n)
	for range n {
		next <- struct{}{}
	}
	close(next)
	for range 16 {
		attackers.Go(func() {
			for range next {
				conn, err := dial()
				if err != nil {
					continue
				}
				t.Cleanup(func() { _ = conn.Close() })
				_, _ = conn.Write(text) // the head may have closed it
			}
		})
	}
	attackers.Wait()
}

// secure returns a dial of the API that speaks a version of HTTP.
func (h *head) secure(protocol string) func() (net.Conn, error) {
	h.Helper()
	trust, err := client.TLSConfig(h.Credential().Trust)
	if err != nil {
		h.Fatal(err)
	}
	trust.NextProtos = []string{protocol}
	return func() (net.Conn, error) { return tls.Dial("tcp", h.Address+":7480", trust) }
}

// plain returns a dial of a port without TLS.
func (h *head) plain(port string) func() (net.Conn, error) {
	return func() (net.Conn, error) { return net.Dial("tcp", h.Address+":"+port) }
}

// Unauthenticated clients that send bodies of 1 MiB but for the last byte cost the head little memory, and it serves
// others meanwhile, even those of the same address.
func TestUnreadBodies(t *testing.T) {
	h := newHead(t)
	for _, path := range []string{"/agent/v1/hello", "/agent/v1/sync", "/agent/v1/logs", "/v1/machines",
		"/peer/v1/join"} {
		header := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", path, 1<<20)
		attack(t, 500, h.secure("http/1.1"), append([]byte(header), bytes.Repeat([]byte{' '}, 1<<20-1)...))
		h.mustServe()
	}
	h.mustBeUnharmed()
	if peak := h.peak(); peak > 250<<20 {
		t.Errorf("the head had %d MiB", peak>>20)
	}
}

// The streams of HTTP/2 are limited as connections are. Other addresses are served while one does all it can.
func TestUnreadStreams(t *testing.T) {
	h := newHead(t)
	trust, err := client.TLSConfig(h.Credential().Trust)
	if err != nil {
		t.Fatal(err)
	}
	hostile := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	var streams sync.WaitGroup
	defer streams.Wait()
	for range 20 {
		c := &http.Client{Transport: &http.Transport{TLSClientConfig: trust.Clone(), ForceAttemptHTTP2: true,
			DialContext: hostile.DialContext}}
		for range 100 {
			body, send := io.Pipe()
			defer send.Close()
			req, err := http.NewRequestWithContext(t.Context(), "POST", h.API()+"/agent/v1/hello", body)
			if err != nil {
				t.Fatal(err)
			}
			streams.Go(func() {
				if resp, err := c.Do(req); err == nil {
					_ = resp.Body.Close()
				}
			})
			go func() { _, _ = send.Write(bytes.Repeat([]byte{' '}, 1<<20-1)) }() // until send is closed
		}
	}
	h.mustServe()
	h.mustBeUnharmed()
	if peak := h.peak(); peak > 250<<20 {
		t.Errorf("the head had %d MiB", peak>>20)
	}
}

// Connections that stay open do not lock others out of any port, nor use the files that the head needs.
func TestManyConnections(t *testing.T) {
	h := newHeadWithFiles(t, openFiles)
	for what, c := range map[string]struct {
		dial func() (net.Conn, error)
		text string
	}{
		"boot, idle":            {h.plain("7481"), ""},
		"boot, half a header":   {h.plain("7481"), "GET /livez HTTP/1.1\r\nHost: x\r\nX-Slow: "},
		"boot, keep-alive":      {h.plain("7481"), "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"},
		"API, idle":             {h.plain("7480"), ""},
		"API, half a handshake": {h.plain("7480"), "\x16\x03\x01\x02"},
		"API, after handshake":  {h.secure("http/1.1"), ""},
		"API, HTTP/2":           {h.secure("h2"), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
		"API, half a header":    {h.secure("http/1.1"), "GET /livez HTTP/1.1\r\nHost: x\r\nX-Slow: "},
		"API, keep-alive":       {h.secure("http/1.1"), "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"},
	} {
		attack(t, 2*openFiles, c.dial, []byte(c.text))
		h.mustServe()
		if t.Failed() {
			t.Fatal("while connections are held: ", what)
		}
	}
	h.mustBeUnharmed()
	if strings.Contains(h.Log.String(), "too many open files") {
		t.Error("the head had no file left")
	}
}

// A client that is recognised keeps its connection while unknown ones come and go, even from its own address.
func TestKnownConnectionStays(t *testing.T) {
	h := newHead(t)
	conn, err := h.secure("http/1.1")()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answers := bufio.NewReader(conn)
	whoami := func() {
		t.Helper()
		_, _ = io.WriteString(conn, "GET /v1/whoami HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+
			h.Credential().Token+"\r\n\r\n")
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status, err)
		}
	}
	whoami()
	attack(t, 4*openFiles, h.secure("http/1.1"), nil)
	whoami()
	h.mustServe()
	h.mustBeUnharmed()
}

// No credential is in the log of a head at the level debug, whatever request it was sent in, and wherever in it.
func TestNoCredentialIsLogged(t *testing.T) {
	h := &head{testhead.NewHead(t, "head0")}
	h.Up("--log-level", "debug")
	h.Apply(site)
	h.createInstallSite()
	m := h.powerOn("m2", "52:54:00:77:00:02")
	h.MustTrivet("provision", "m2", "--template", "install", "--machine", "m2", "--no-wait")
	script := h.MustBoot("52:54:00:77:00:02")
	m.awaitSuccess()
	credentials := map[string]string{
		"the administrator's token": h.Credential().Token, "a viewer's token": h.MustTrivet("token", "issue", "robot"),
		"a join token": h.MustTrivet("head", "token"), "a password": "calvin",
		"a boot token": regexp.MustCompile(`tb1~[^\s]+`).FindString(script),
	}
	api := h.rawAPI()
	for what, text := range credentials {
		if text == "" {
			t.Fatalf("there is no %s", what)
		}
		for _, url := range []string{h.API(), h.BootURL()} {
			for _, path := range []string{"/v1/machines/", "/agent/v1/sync?x=", "/phone-home/", "/x/", "/v1/machines?token=",
				"/v1/machines?fields=", "/boot/script/", "/peer/v1/join?x="} {
				for _, method := range []string{"GET", "POST"} {
					h.sendCredential(t, api, method, url+path, text)
				}
			}
		}
	}
	log := h.Log.String()
	for what, text := range credentials {
		secret := text[max(0, len(text)-24):]
		if at := strings.Index(log, secret); at >= 0 {
			t.Errorf("the log has %s: %.300s", what, log[max(0, at-200):])
		}
	}
	if !strings.Contains(log, "level=DEBUG") {
		t.Error("nothing was logged at level debug")
	}
}

// sendCredential sends a credential in the path or query, a header and the body of a request. Whatever is answered.
func (h *head) sendCredential(t *testing.T, c *http.Client, method, url, text string) {
	t.Helper()
	body := strings.NewReader(fmt.Sprintf(`{"name": %q, %q: 1}`, text, text))
	if strings.Contains(text, "calvin") { // a password is known by where it is
		url, body = strings.TrimSuffix(url, "/"), strings.NewReader(`{"name":"x","spec":{"data":{"password":"calvin",}}}`)
	} else {
		url += text
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text, "calvin") {
		req.Header.Set("Authorization", "Bearer "+text)
		req.Header.Set("X-Request-ID", text)
		req.Header.Set("User-Agent", text)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
}
