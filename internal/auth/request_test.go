package auth

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
)

var agentKey = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, 32))

func lookupAgent(machine string) (ed25519.PublicKey, error) {
	if machine != "m1" {
		return nil, trivet.ErrNotFound
	}
	return agentKey.Public().(ed25519.PublicKey), nil
}

func signed(t testing.TB, target, body string) *http.Request {
	t.Helper()
	r := httptest.NewRequest("POST", target, strings.NewReader(body))
	SignRequest(r, []byte(body), "m1", agentKey, day)
	return r
}

// A signed request over HTTP, with a path that has two spellings.
func TestAgentRequestOverHTTP(t *testing.T) {
	type result struct {
		agent Agent
		err   error
	}
	got := make(chan result, 1)
	mux := http.NewServeMux()
	mux.Handle("/v1/", http.StripPrefix("/v1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxSignedBody))
		agent, err := VerifyRequest(r, body, lookupAgent, day.Add(time.Minute), 2*time.Minute)
		got <- result{agent, err}
	})))
	srv := httptest.NewServer(mux)
	defer srv.Close()
	for _, target := range []string{"/v1/agents/m1/sync", "/v1/a%2Fb/%7Ec?x=%20y&z=a+b", "/v1/?", "/v1/ü"} {
		req, err := http.NewRequest("POST", srv.URL+target, strings.NewReader("report"))
		if err != nil {
			t.Fatal(err)
		}
		SignRequest(req, []byte("report"), "m1", agentKey, day)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		r := <-got
		if r.err != nil || r.agent.Machine != "m1" || !r.agent.Time.Equal(day) {
			t.Errorf("%s: %+v, %v", target, r.agent, r.err)
		}
	}
}

func TestAgentRequestTampering(t *testing.T) {
	const target, body = "/agents/m1/sync?epoch=7", "report"
	header := func(old, new string) func(*http.Request, *[]byte) {
		return func(r *http.Request, _ *[]byte) {
			h := r.Header.Get("Authorization")
			if !strings.Contains(h, old) {
				t.Fatalf("no %q in %q", old, h)
			}
			r.Header.Set("Authorization", strings.Replace(h, old, new, 1))
		}
	}
	cases := map[string]struct {
		change func(*http.Request, *[]byte)
		want   error
	}{
		"nothing": {func(*http.Request, *[]byte) {}, nil},
		"host":    {func(r *http.Request, _ *[]byte) { r.Host = "another.head" }, nil},
		"method":  {func(r *http.Request, _ *[]byte) { r.Method = "DELETE" }, trivet.ErrUnauthenticated},
		"path": {func(r *http.Request, _ *[]byte) { r.RequestURI = "/agents/m2/sync?epoch=7" },
			trivet.ErrUnauthenticated},
		"query": {func(r *http.Request, _ *[]byte) { r.RequestURI = "/agents/m1/sync?epoch=8" },
			trivet.ErrUnauthenticated},
		"body": {func(_ *http.Request, b *[]byte) { *b = []byte("Report") }, trivet.ErrUnauthenticated},
		"body too large": {func(_ *http.Request, b *[]byte) { *b = make([]byte, MaxSignedBody+1) },
			trivet.ErrTooLarge},
		"machine":        {header("machine=m1", "machine=m2"), trivet.ErrNotFound},
		"machine's form": {header("machine=m1", "machine=../m1"), trivet.ErrUnauthenticated},
		"key": {header("key="+Fingerprint(agentKey.Public().(ed25519.PublicKey)), "key=0123456789abcdef"),
			trivet.ErrUnauthenticated},
		"time":           {header("time=19", "time=18"), trivet.ErrUnauthenticated},
		"time's form":    {header("time=", "time=0"), trivet.ErrUnauthenticated},
		"nonce":          {header("nonce=", "nonce=AAAA"), trivet.ErrUnauthenticated},
		"digest":         {header("body=", "body=A"), trivet.ErrUnauthenticated},
		"another digest": {header("body="+bodyDigest([]byte(body)), "body="+bodyDigest(nil)), trivet.ErrUnauthenticated},
		"sig":            {header("sig=", "sig=A"), trivet.ErrUnauthenticated},
		"version":        {header("v=2", "v=1"), trivet.ErrUnauthenticated},
		"one more field": {header("v=2,", "v=2,x=y,"), trivet.ErrUnauthenticated},
		"no header": {func(r *http.Request, _ *[]byte) { r.Header.Del("Authorization") },
			trivet.ErrUnauthenticated},
		"a second header": {func(r *http.Request, _ *[]byte) { r.Header.Add("Authorization", "Bearer x") },
			trivet.ErrUnauthenticated},
		"signed in 1970": {func(r *http.Request, b *[]byte) { SignRequest(r, *b, "m1", agentKey, time.Unix(0, 0)) },
			trivet.ErrClockSkew},
		"signed in future": {func(r *http.Request, b *[]byte) {
			SignRequest(r, *b, "m1", agentKey, day.Add(3*time.Minute))
		}, trivet.ErrClockSkew},
	}
	for name, c := range cases {
		r, b := signed(t, target, body), []byte(body)
		c.change(r, &b)
		if _, err := VerifyRequest(r, b, lookupAgent, day, 2*time.Minute); !errors.Is(err, c.want) {
			t.Errorf("%s: %v; want %v", name, err, c.want)
		}
	}
	if !errors.Is(trivet.ErrClockSkew, trivet.ErrUnauthenticated) {
		t.Error("ErrClockSkew must be an ErrUnauthenticated")
	}
}

func FuzzParseProof(f *testing.F) {
	f.Add(signed(f, "/x", "").Header.Get("Authorization"))
	f.Add("Trivet-Agent v=2,machine=,key=,time=,nonce=,body=,sig=")
	f.Fuzz(func(t *testing.T, header string) {
		p, err := parseProof(header)
		if err != nil {
			if !errors.Is(err, trivet.ErrUnauthenticated) {
				t.Errorf("error: %v", err)
			}
			return
		}
		if p.String() != header || strings.ContainsAny(p.machine+p.nonce, "\n,") {
			t.Errorf("%q parsed as %+v", header, p)
		}
	})
}
