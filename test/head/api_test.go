package head_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trivet-project/trivet/client"
)

// zeros returns n bytes between two texts; the sender does not hold them in memory.
func zeros(n int64, around ...string) io.Reader {
	return io.MultiReader(strings.NewReader(around[0]), io.LimitReader(repeated('x'), n), strings.NewReader(around[1]))
}

type repeated byte

func (c repeated) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(c)
	}
	return len(b), nil
}

// badRequest is a request to the API that is refused, and words of the answer.
type badRequest struct {
	what, method, path, body string
	status                   int
	words                    []string
}

func machineJSON(spec string) string { return `{"kind":"Machine","name":"x","spec":` + spec + `}` }

// manyFields returns 50000 unknown fields of an object, each with a comma.
func manyFields() string {
	var b strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&b, `"f%d":0,`, i)
	}
	return b.String()
}

var badRequests = []badRequest{
	{"nothing", "POST", "/v1/machines", "", 422, []string{"not JSON"}},
	{"no JSON", "POST", "/v1/machines", "kind: Machine", 422, []string{"not JSON", "at byte"}},
	{"half an object", "POST", "/v1/machines", `{"kind":"Machine",`, 422, []string{"not JSON", "unexpected EOF"}},
	{"two objects", "POST", "/v1/machines", "{}{}", 422, []string{"more than one"}},
	{"a list", "POST", "/v1/machines", "[]", 422, []string{"must be an object"}},
	{"deep lists", "POST", "/v1/machines", strings.Repeat("[", 500_000), 422, []string{"nested too deep"}},
	{"deep objects", "POST", "/v1/machines", strings.Repeat(`{"a":`, 150_000), 422, []string{"nested too deep"}},
	{"deep patch", "PATCH", "/v1/machines/m1", strings.Repeat(`{"spec":`, 100_000), 422,
		[]string{"merge patch", "depth"}},
	{"deep arguments", "POST", "/v1/projects/default/templates", `{"name":"x","spec":{"actions":[{"name":"a","use":"noop","with":` +
		strings.Repeat(`{"a":`, 50) + `1` + strings.Repeat("}", 50) + `}]}}`, 422, []string{"nested too deep"}},
	{"long name of a property", "POST", "/v1/projects/default/templates",
		`{"name":"x","spec":{"actions":[{"name":"a","use":"noop","with":{"` +
			strings.Repeat("k", 400_000) + `":[` + strings.Repeat(`"",`, 200_000) + `""]}}]}}`, 422,
		[]string{"too deep"}},
	{"long name in a patch", "PATCH", "/v1/machines/m1", `{"spec":{"` + strings.Repeat("k", 400_000) + `":[` +
		strings.Repeat(`"",`, 200_000) + `""]}}`, 422, []string{"too deep"}},
	{"wrong types", "POST", "/v1/machines", `{"kind":1,"name":["x"],"labels":"y","spec":[]}`, 422,
		[]string{"kind must be a text", "name must be a text", "labels must be an object",
			"spec must be an object"}},
	{"unknown fields", "POST", "/v1/machines", machineJSON(`{"nicks":[]}`), 422,
		[]string{"spec.nicks is not known", "did you mean nics"}},
	{"50000 unknown fields", "POST", "/v1/machines", machineJSON("{" + manyFields() + `"z":0}`), 422,
		[]string{"spec.f0 is not known"}},
	{"one unknown field as long as a book", "POST", "/v1/machines",
		machineJSON(`{"` + strings.Repeat("é", 400_000) + `":0}`), 422, []string{"too deep"}},
	{"a number as long as a book", "POST", "/v1/projects/default/provisions",
		`{"name":"x","generation":` + strings.Repeat("9", 900_000) + `}`, 422, []string{"generation"}},
	{"a text as long as a book", "POST", "/v1/machines",
		machineJSON(`{"arch":"` + strings.Repeat("x", 900_000) + `"}`), 422, []string{"arch"}},
	{"a MAC as long as a book", "POST", "/v1/machines",
		machineJSON(`{"nics":[{"mac":"` + strings.Repeat("x", 900_000) + `"}]}`), 422, []string{"MAC"}},
	{"an address as long as a book", "POST", "/v1/networks",
		`{"name":"x","spec":{"cidr":"` + strings.Repeat("1", 900_000) + `"}}`, 422, []string{"spec.cidr"}},
	{"a duration of ages", "POST", "/v1/projects/default/templates",
		`{"name":"x","spec":{"actions":[{"name":"a","use":"noop","timeout":"99999999h"}]}}`, 422,
		[]string{"timeout"}},
	{"a record of 600 KB", "POST", "/v1/projects/default/templates",
		`{"name":"x","spec":{"actions":[{"name":"a","use":"command","with":{"args":["` +
			strings.Repeat(strings.Repeat("y", 60_000)+`","`, 10) + `"]}}]}}`, 413,
		[]string{"the maximum is 524288"}},
	{"twice", "POST", "/v1/machines", `{"name":"x","name":"y"}`, 422, []string{"name appears twice"}},
	{"twice in a patch", "PATCH", "/v1/machines/m1", `{"spec":{"arch":"amd64","arch":"arm64"}}`, 422,
		[]string{"spec.arch appears twice"}},
	{"patch that is no object", "PATCH", "/v1/machines/m1", `[1]`, 422, []string{"merge patch"}},
	{"patch of the status", "PATCH", "/v1/machines/m1", `{"status":{"state":"active"}}`, 422,
		[]string{"written by Trivet only"}},
	{"NUL in a name", "POST", "/v1/machines", `{"name":"a\u0000b"}`, 422, []string{"name"}},
	{"no UTF-8 in a name", "POST", "/v1/machines", "{\"name\":\"a\xff\xfeb\"}", 422, []string{"name"}},
	{"half a surrogate", "POST", "/v1/machines", `{"name":"a\ud800"}`, 422, []string{"name"}},
	{"path in a name", "POST", "/v1/machines", `{"name":"../../etc/passwd"}`, 422, []string{"name"}},
	{"path in the URL", "GET", "/v1/machines/..%2f..%2fetc%2fpasswd", "", 404, nil},
	{"path in the URL, written", "PUT", "/v1/machines/..%2f..%2fetc", machineJSON("{}"), 422, []string{"name"}},
	{"NUL in the URL", "DELETE", "/v1/machines/%00", "", 422, []string{"name"}},
	{"no UTF-8 in the URL", "GET", "/v1/machines/%ff%fe", "", 404, nil},
	{"no UTF-8 in a label", "PATCH", "/v1/machines/m1", "{\"labels\":{\"a\xff\":\"b\"}}", 422, []string{"labels"}},
	{"path for logs", "GET", "/v1/projects/default/workflows/..%2f..%2f/logs", "", 404, nil},
	{"path for a blob", "GET", "/v1/blobs/..%2f..%2fkeys%2fca.pem", "", 422, []string{"digest"}},
	{"path for an upload", "PATCH", "/v1/uploads/..%2f..%2fkeys%2fca.pem?offset=0", "x", 404, nil},
	{"selector of letters", "GET", "/v1/machines?labels=%00", "", 422, []string{"key=value"}},
	{"selector as long as a book", "GET", "/v1/machines?labels=" + strings.Repeat("a%3Db,", 1000), "", 422,
		[]string{"at most 32"}},
	{"selector of no field", "GET", "/v1/machines?fields=spec.nope%3D1", "", 422, []string{"nope"}},
	{"limit below nothing", "GET", "/v1/machines?limit=-1", "", 422, []string{"limit"}},
	{"limit without limit", "GET", "/v1/machines?limit=99999999999999999999", "", 422, []string{"limit"}},
	{"revision of letters", "GET", "/v1/watch?from=x", "", 422, []string{"from"}},
	{"revision of the future", "GET", "/v1/watch?from=9000000000000000000", "", 410, []string{"compacted"}},
	{"watch of no kind", "GET", "/v1/watch?kinds=nope", "", 422, []string{"nope"}},
	{"URL as long as a book", "GET", "/v1/machines?x=" + strings.Repeat("x", 20_000), "", 413,
		[]string{"at most 8192"}},
	{"no such place", "GET", "/v1/nope", "", 404, []string{"openapi.json"}},
	{"agent that is none", "POST", "/agent/v1/hello", `{"key":"AAAA"}`, 422, []string{"key"}},
	{"agent's JSON too deep", "POST", "/agent/v1/hello", strings.Repeat(`{"inventory":[`, 4_000), 422,
		[]string{"hello"}},
}

// Whatever a request to the API contains, the answer states what is wrong with it and is short.
func TestBadAPI(t *testing.T) {
	h := newHead(t)
	api := h.rawAPI()
	for _, c := range badRequests {
		t.Run(c.what, func(t *testing.T) {
			req := h.request(t.Context(), c.method, c.path, strings.NewReader(c.body))
			if c.method == "PATCH" {
				req.Header.Set("Content-Type", "application/merge-patch+json")
			}
			h.mustRefuseRequest(t, api, req, c.status, c.words...)
		})
	}
	for _, field := range []string{`{"kind":"Machine","name":"`, `{"kind":"Machine","name":"x","spec":{"serial":"`} {
		t.Run("100 MB in "+field, func(t *testing.T) {
			req := h.request(t.Context(), "POST", "/v1/machines", zeros(100<<20, field, `"}`))
			h.mustRefuseRequest(t, api, req, 413, "over 1048576 bytes")
		})
	}
	h.refusesCredentials(t, api)
	t.Run("huge header", func(t *testing.T) {
		req := h.request(t.Context(), "GET", "/v1/machines", nil)
		req.Header.Set("X-Long", strings.Repeat("x", 1<<20))
		resp, err := api.Do(req)
		if err != nil { // it was cut before all was sent
			return
		}
		resp.Body.Close()
		if resp.StatusCode != 431 {
			t.Errorf("answered %s", resp.Status)
		}
	})
	t.Run("no TLS", func(t *testing.T) {
		status, text := rawHTTP(t, h.Address+":7480", "GET /v1/machines HTTP/1.1\r\nHost: x\r\n\r\n")
		if status != 400 || !strings.Contains(text, "HTTPS") {
			t.Errorf("%d: %s", status, text)
		}
	})
	h.mustBeUnharmed()
}

// refusesCredentials sends requests without a valid token.
func (h *head) refusesCredentials(t *testing.T, api *http.Client) {
	t.Helper()
	for _, c := range []struct{ what, token string }{
		{"no token", ""}, {"half a token", "Bearer trivet_"},
		{"another's token", "Bearer trivet_" + strings.Repeat("a", 16) + "_" + strings.Repeat("b", 52)},
		{"a password", "Basic YWRtaW46YWRtaW4="}, {"a book", "Bearer " + strings.Repeat("x", 20_000)},
	} {
		t.Run(c.what, func(t *testing.T) {
			req := h.request(t.Context(), "GET", "/v1/machines", nil)
			req.Header.Set("Authorization", c.token)
			h.mustRefuseRequest(t, api, req, 401, "unauthenticated")
		})
	}
}

func (h *head) mustRefuseRequest(t *testing.T, c *http.Client, req *http.Request, status int, words ...string) {
	t.Helper()
	began := time.Now()
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != status {
		t.Errorf("answered %s, want %d", resp.Status, status)
	}
	mustAnswer(t, string(text), words...)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
}

// A client that sends slowly, or does not read the response, holds no connection forever, and delays no other client.
func TestSlowClients(t *testing.T) {
	if testing.Short() {
		t.Skip("waits until the head closes slow connections")
	}
	h := newHead(t)
	trust, err := client.TLSConfig(h.Credential().Trust)
	if err != nil {
		t.Fatal(err)
	}
	trust.NextProtos = []string{"http/1.1"}
	secure := func() (net.Conn, error) { return tls.Dial("tcp", h.Address+":7480", trust) }
	plain := func(port string) func() (net.Conn, error) {
		return func() (net.Conn, error) { return net.Dial("tcp", h.Address+":"+port) }
	}
	var conns []net.Conn
	for _, c := range []struct {
		dial func() (net.Conn, error)
		text string
	}{
		{plain("7481"), ""}, {plain("7481"), "GET /livez HTTP/1.1\r\nHost: x\r\nX-Slow: "},
		{plain("7481"), "POST /phone-home/x HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nx"},
		{plain("7480"), ""}, {plain("7480"), "\x16\x03\x01\x02"}, // a handshake that does not continue
		{secure, ""}, {secure, "GET /livez HTTP/1.1\r\nHost: x\r\nX-Slow: "},
		{secure, "POST /agent/v1/hello HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"},
		{secure, "POST /v1/machines HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + h.Credential().Token +
			"\r\nContent-Length: 1000\r\n\r\n{"},
	} {
		for range 50 {
			conn, err := c.dial()
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, c.text); err != nil {
				t.Fatal(err)
			}
			conns = append(conns, conn)
		}
	}
	h.mustServe() // meanwhile
	for i, conn := range conns {
		_ = conn.SetReadDeadline(time.Now().Add(2 * timeout))
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("connection %d is still open", i)
		} else if err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Logf("connection %d: %v", i, err)
		}
	}
	h.mustBeUnharmed()
}
