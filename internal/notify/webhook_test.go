package notify

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/limit"
)

var testKey = bytes.Repeat([]byte("k"), 32)

func testMessage(id string) Message {
	return New(id, "c1", "machine/m1", time.Unix(1700000000, 0), Data{Reason: trivet.ReasonFailed, Message: "disk\r\n"})
}

func newSender(t *testing.T, url string, keys ...[]byte) *Webhook {
	t.Helper()
	w, err := NewWebhook(&trivet.Webhook{URL: url}, keys...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// A request is a CloudEvent, and its signature is verified as the text of Standard Webhooks says, by each key.
func TestRequest(t *testing.T) {
	var got *http.Request
	var body []byte
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
	}))
	t.Cleanup(server.Close)
	old := bytes.Repeat([]byte("o"), 24)
	w := newSender(t, server.URL+"/hook?a=b", testKey, old)
	if n, err := w.Send(t.Context(), []Message{testMessage("e1")}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	var event map[string]any
	if err := json.Unmarshal(body, &event); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{"specversion": "1.0", "id": "e1", "source": "/trivet/c1",
		"type": "io.github.trivet-project.Failed", "subject": "machine/m1", "time": "2023-11-14T22:13:20Z",
		"datacontenttype": "application/json"} {
		if event[key] != want {
			t.Errorf("%s is %v, want %v", key, event[key], want)
		}
	}
	if got.Method != "POST" || got.URL.String() != "/hook?a=b" ||
		!strings.HasPrefix(got.Header.Get("Content-Type"), "application/cloudevents+json") {
		t.Errorf("%s %s, %s", got.Method, got.URL, got.Header)
	}
	id, at := got.Header.Get("webhook-id"), got.Header.Get("webhook-timestamp")
	signatures := strings.Split(got.Header.Get("webhook-signature"), " ")
	if id != "e1" || len(signatures) != 2 {
		t.Fatalf("id %q, signatures %q", id, signatures)
	}
	for i, key := range [][]byte{testKey, old} {
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%s.%s", id, at, body)
		if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); signatures[i] != want {
			t.Errorf("signature %d is %s, want %s", i, signatures[i], want)
		}
	}
}

// The vector is of the specification of Standard Webhooks.
func TestSignatureVector(t *testing.T) {
	key, err := trivet.ParseWebhookKey("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	w := &Webhook{keys: [][]byte{key}}
	got := w.signature("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// What a receiver answers decides: only 2xx is a success, a redirect is not followed, 410 is the end.
func TestOutcomes(t *testing.T) {
	var followed bool
	mux := http.NewServeMux()
	mux.HandleFunc("/status/{code}", func(w http.ResponseWriter, r *http.Request) {
		var code int
		_, _ = fmt.Sscan(r.PathValue("code"), &code)
		if code == 503 {
			w.Header().Set("Retry-After", "120")
		}
		if code == 429 {
			w.Header().Set("Retry-After", "99999999999")
		}
		w.Header().Set("Location", "/followed")
		w.WriteHeader(code)
	})
	mux.HandleFunc("/followed", func(http.ResponseWriter, *http.Request) { followed = true })
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	for _, tc := range []struct {
		code  int
		want  string // empty: success
		later time.Duration
	}{
		{200, "", 0}, {204, "", 0}, {301, "redirects are not followed: set spec.webhook.url", 0},
		{307, "redirects are not followed", 0}, {400, "answered 400 (Bad Request)", 0}, {410, "wants no more", 0},
		{500, "answered 500 (Internal Server Error)", 0}, {503, "answered 503", 2 * time.Minute},
		{429, "answered 429", maxRetryAfter},
	} {
		w := newSender(t, fmt.Sprint(server.URL, "/status/", tc.code), testKey)
		n, err := w.Send(t.Context(), []Message{testMessage("1"), testMessage("2")})
		var later *RetryError
		switch {
		case tc.want == "" && (err != nil || n != 2), tc.want != "" && (err == nil || n != 0 ||
			!strings.Contains(err.Error(), tc.want)):
			t.Errorf("%d: delivered %d, %v", tc.code, n, err)
		case errors.Is(err, ErrGone) != (tc.code == 410):
			t.Errorf("%d: %v", tc.code, err)
		case errors.As(err, &later) != (tc.later > 0) || later != nil && later.After != tc.later:
			t.Errorf("%d: %+v", tc.code, later)
		}
	}
	if followed {
		t.Error("a redirect was followed")
	}
}

// The messages before the one that fails count as delivered, and none after it is sent.
func TestOrderOfFailure(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got = append(got, r.Header.Get("webhook-id")); len(got) == 2 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(server.Close)
	w := newSender(t, server.URL, testKey)
	n, err := w.Send(t.Context(), []Message{testMessage("1"), testMessage("2"), testMessage("3")})
	if n != 1 || err == nil || !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("delivered %d, %v; the receiver got %v", n, err, got)
	}
}

// A receiver that hangs, before it answers or within its answer, is given up; one that never ends its answer is read
// up to a bound.
func TestReceiverThatHangs(t *testing.T) {
	release := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/silent", func(http.ResponseWriter, *http.Request) { <-release })
	mux.HandleFunc("/endless", func(w http.ResponseWriter, r *http.Request) {
		for {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/headers", func(w http.ResponseWriter, _ *http.Request) {
		for i := range 1000 {
			w.Header().Set(fmt.Sprint("X-", i), strings.Repeat("x", 1000))
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(release) })
	w := newSender(t, server.URL+"/silent?token=abc", testKey)
	w.client.Timeout = 200 * time.Millisecond
	_, err := w.Send(t.Context(), []Message{testMessage("1")})
	if err == nil || !strings.Contains(err.Error(), "did not answer") || strings.Contains(err.Error(), "abc") {
		t.Errorf("a receiver that hangs: %v", err)
	}
	if n, err := newSender(t, server.URL+"/endless", testKey).Send(t.Context(), []Message{testMessage("1")}); n != 1 {
		t.Errorf("an endless answer: %v", err)
	}
	if _, err := newSender(t, server.URL+"/headers", testKey).Send(t.Context(), []Message{testMessage("1")}); err == nil {
		t.Error("a megabyte of headers was accepted")
	}
}

// Addresses where no receiver can be are refused after the name is resolved. The kernel would need no route to them.
func TestAddresses(t *testing.T) {
	for address, ok := range map[string]bool{
		"10.0.0.1:443": true, "127.0.0.1:80": true, "[2001:db8::1]:443": true,
		"169.254.169.254:80": false, "[::ffff:169.254.169.254]:80": false, "[fe80::1]:80": false, "0.0.0.0:80": false,
		"[::]:80": false, "224.0.0.1:80": false,
	} {
		if err := limit.CheckOutbound(t.Context(), "tcp", address, nil); (err == nil) != ok ||
			err != nil && !errors.Is(err, trivet.ErrForbidden) {
			t.Errorf("%s: %v", address, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := newSender(t, "http://169.254.169.254/latest/meta-data", testKey).Send(ctx, []Message{testMessage("1")})
	if !errors.Is(err, trivet.ErrForbidden) {
		t.Errorf("the metadata service: %v", err)
	}
}

// The certificate of a receiver is verified, by the authority of the record if there is one.
func TestCertificate(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	server.Config.ErrorLog = nil
	if _, err := newSender(t, server.URL, testKey).Send(t.Context(), []Message{testMessage("1")}); err == nil {
		t.Error("an unknown authority was accepted")
	}
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	w, err := NewWebhook(&trivet.Webhook{URL: server.URL, CA: ca}, testKey)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	if n, err := w.Send(t.Context(), []Message{testMessage("1")}); n != 1 {
		t.Errorf("the authority of the record: %v", err)
	}
	if _, err := NewWebhook(&trivet.Webhook{URL: server.URL, CA: "-----BEGIN CERTIFICATE-----"}, testKey); err == nil {
		t.Error("an authority that cannot be read was accepted")
	}
}

// down is an address where no program listens. Another one may take a port that was closed.
const down = "127.0.0.1:1"

// A receiver that is down is refused at once.
func TestReceiverThatIsDown(t *testing.T) {
	_, err := newSender(t, "http://"+down+"/?token=abc", testKey).Send(t.Context(), []Message{testMessage("1")})
	if err == nil || !strings.Contains(err.Error(), "refused") || strings.Contains(err.Error(), "abc") {
		t.Errorf("%v", err)
	}
}

// Keys and secrets are checked before anything is sent.
func TestOpen(t *testing.T) {
	good := "whsec_" + base64.StdEncoding.EncodeToString(testKey)
	n := &trivet.Notifier{Spec: trivet.NotifierSpec{Webhook: &trivet.Webhook{URL: "http://127.0.0.1:1"}}}
	unseal := func(s *trivet.Secret, key string) (string, error) { return s.Spec.Data[key], nil }
	for _, tc := range []struct {
		data map[string]string
		keys int // 0: refused
	}{
		{map[string]string{"key": good}, 1}, {map[string]string{"key": good + "\n", "oldKey": good}, 2},
		{nil, 0}, {map[string]string{"key": "hunter2"}, 0}, {map[string]string{"key": "whsec_aGVsbG8="}, 0},
		{map[string]string{"key": good, "oldKey": "x"}, 0}, {map[string]string{"oldKey": good}, 0},
	} {
		s, err := Open(n, &trivet.Secret{Meta: trivet.Meta{Name: "s"}, Spec: trivet.SecretSpec{Data: tc.data}}, unseal)
		if (err == nil) != (tc.keys > 0) || err == nil && len(s.(*Webhook).keys) != tc.keys {
			t.Errorf("%v: %v", tc.data, err)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error has the key: %v", err)
		}
	}
}
