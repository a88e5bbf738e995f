package api_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

func TestAuthorization(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	tokens := map[string]string{"admin": h.admin, "operator": h.account("op", "operator"),
		"viewer":   h.account("vi", "viewer"),
		"no token": "", "garbage": "trivet_x", "unknown": strings.Replace(h.admin, h.admin[len(h.admin)-4:], "aaaa", 1)}
	const table = `
		GET  /v1/machines        200 200 200 401 401 401
		POST /v1/machines        422 422 403 401 401 401
		GET  /v1/secrets         200 200 200 401 401 401
		POST /v1/projects/default/secrets 422 403 403 401 401 401
		POST /v1/accounts        422 403 403 401 401 401
		POST /v1/tokens/issue    404 403 403 401 401 401
		GET  /v1/watch?from=x    422 422 422 401 401 401
		POST /v1/blobs           201 201 403 401 401 401
		GET  /v1/blobs           200 200 200 401 401 401
		GET  /v1/whoami          200 200 200 401 401 401
		GET  /metrics            200 200 200 401 401 401
		GET  /openapi.json       200 200 200 401 401 401
		GET  /livez              200 200 200 200 200 200
		GET  /readyz             200 200 200 200 200 200
		GET  /v1/version         200 200 200 200 200 200
		POST /agent/v1/sync      401 401 401 401 401 401`
	for line := range strings.Lines(strings.TrimSpace(table)) {
		f := strings.Fields(line)
		for i, who := range []string{"admin", "operator", "viewer", "no token", "garbage", "unknown"} {
			body := ""
			if f[0] == "POST" && !strings.Contains(f[1], "blobs") {
				body = "{}"
			}
			if f[1] == "/agent/v1/sync" {
				body = "x"
			}
			if status, got := h.ask(tokens[who], f[0], f[1], body); fmt.Sprint(status) != f[2+i] {
				t.Errorf("%s %s by %s: %d %.200v; want %s", f[0], f[1], who, status, got, f[2+i])
			}
		}
	}
	log := h.log.String()
	for who, token := range tokens {
		if len(token) > 20 && strings.Contains(log, token[len(token)-30:]) {
			t.Errorf("the log holds the token of %s", who)
		}
	}
	if !strings.Contains(log, `"account":"op"`) || !strings.Contains(log, "a token was refused") {
		t.Error("the log does not name the account")
	}
}

func TestPlainHTTPIsRefused(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	plain := &http.Server{Handler: h.handler}
	done := make(chan struct{})
	go func() { defer close(done); plain.Serve(l) }()
	defer func() { plain.Close(); <-done }()
	req := must(http.NewRequestWithContext(t.Context(), "GET", "http://"+l.Addr().String()+"/v1/machines", nil))(t)
	req.Header.Set("Authorization", "Bearer "+h.admin)
	resp := must(http.DefaultClient.Do(req))(t)
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("status %d", resp.StatusCode)
	}
}

func TestTokenLifecycle(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	admin := h.client(h.admin)
	ctx := t.Context()
	if _, err := admin.IssueToken(ctx, trivet.TokenRequest{Account: "missing"}); !errors.Is(err, trivet.ErrNotFound) {
		t.Errorf("token of a missing account: %v", err)
	}
	for what, req := range map[string]trivet.TokenRequest{
		"in the past":     {Account: "root", Expires: time.Now().Add(-time.Hour)},
		"never, and soon": {Account: "root", Expires: time.Now().Add(time.Hour), Never: true},
	} {
		if _, err := admin.IssueToken(ctx, req); !errors.Is(err, trivet.ErrInvalid) {
			t.Errorf("token that expires %s: %v", what, err)
		}
	}
	if _, err := client.Of[trivet.Account](admin).Create(ctx, &trivet.Account{Meta: trivet.Meta{Name: "alice"},
		Spec: trivet.AccountSpec{Role: "viewer"}}); err != nil {
		t.Fatal(err)
	}
	issued, err := admin.IssueToken(ctx, trivet.TokenRequest{Account: "alice"})
	if err != nil {
		t.Fatal(err)
	}
	token := issued.Token
	alice := h.client(token)
	who, err := alice.Whoami(ctx)
	if err != nil || who.Account != "alice" || who.Role != "viewer" || who.Expires.IsZero() {
		t.Errorf("%+v, %v", who, err)
	}
	if _, list := h.ask(token, "GET", "/v1/tokens", ""); strings.Contains(fmt.Sprint(list), "sha256:") {
		t.Errorf("a hash is shown: %v", list)
	}
	if err := admin.Kind(kindInfo(t, "tokens")).Delete(ctx, who.Token); err != nil {
		t.Fatal(err)
	}
	if _, err := alice.Whoami(ctx); !errors.Is(err, trivet.ErrUnauthenticated) {
		t.Errorf("a revoked token: %v", err)
	}
	if err := client.Of[trivet.Account](admin).Delete(ctx, "root"); !errors.Is(err, trivet.ErrConflict) {
		t.Errorf("an admin locks itself out: %v", err)
	}
}

// A token expires after 90 days, after the site's time, or never where that is asked for.
func TestTokensExpireByDefault(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	admin := h.client(h.admin)
	lifetime := func(req trivet.TokenRequest) time.Duration {
		t.Helper()
		req.Account = "root"
		issued, err := admin.IssueToken(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		who, err := h.client(issued.Token).Whoami(t.Context())
		if err != nil || !who.Expires.Equal(issued.Expires) {
			t.Errorf("issued until %s, whoami says %s, %v", issued.Expires, who.Expires, err)
		}
		if issued.Expires.IsZero() {
			return 0
		}
		return time.Until(issued.Expires).Round(time.Hour)
	}
	const day = 24 * time.Hour
	if got := lifetime(trivet.TokenRequest{}); got != 90*day {
		t.Errorf("by default a token is valid for %s", got)
	}
	put(h, h.fleet.Sites, &trivet.Site{Meta: trivet.Meta{Name: "site"},
		Spec: trivet.SiteSpec{TokenLifetime: trivet.Duration(7 * day)}})
	if got := lifetime(trivet.TokenRequest{}); got != 7*day {
		t.Errorf("by the site's setting a token is valid for %s", got)
	}
	if got := lifetime(trivet.TokenRequest{Expires: time.Now().Add(2 * day)}); got != 2*day {
		t.Errorf("by request a token is valid for %s", got)
	}
	if got := lifetime(trivet.TokenRequest{Never: true}); got != 0 {
		t.Errorf("a token that never expires is valid for %s", got)
	}
}

func TestSecretsAreSealedAndNeverShown(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	admin := h.client(h.admin)
	secrets := client.Of[trivet.Secret](admin)
	ctx := t.Context()
	s := &trivet.Secret{Meta: trivet.Meta{Project: "default", Name: "bmc"},
		Spec: trivet.SecretSpec{Data: map[string]string{"user": "root", "password": "hunter2"}}}
	made, err := secrets.Create(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := h.fleet.Secrets.Get("default/bmc")
	if err != nil || !strings.HasPrefix(stored.Spec.Data["password"], "sealed:v1:") {
		t.Fatalf("%+v, %v", stored, err)
	}
	if same, err := secrets.Update(ctx, s); err != nil || same.Revision != made.Revision {
		t.Errorf("the same values again must change nothing: %+v, %v", same, err)
	}
	shown, err := secrets.Get(ctx, "bmc")
	if err != nil || shown.Spec.Data["password"] != "sealed:hidden" {
		t.Errorf("%+v, %v", shown, err)
	}
	shown.Spec.Data["user"] = "admin" // what is shown can be written back
	if _, err := secrets.Update(ctx, shown); err != nil {
		t.Fatal(err)
	}
	now, err := h.fleet.Secrets.Get("default/bmc")
	if err != nil || now.Spec.Data["password"] != stored.Spec.Data["password"] ||
		now.Spec.Data["user"] == stored.Spec.Data["user"] {
		t.Errorf("%+v, %v", now, err)
	}
	if _, err := secrets.Patch(ctx, "bmc", []byte(`{"spec":{"data":{"password":"better","user":null}}}`),
		0); err != nil {
		t.Fatal(err)
	}
	if now, err = h.fleet.Secrets.Get("default/bmc"); err != nil || !strings.HasPrefix(now.Spec.Data["password"],
		"sealed:v1:") || len(now.Spec.Data) != 1 {
		t.Errorf("after a patch: %+v, %v", now, err)
	}
	for _, moved := range []string{stored.Spec.Data["password"], "sealed:hidden"} {
		s := &trivet.Secret{Meta: trivet.Meta{Project: "default", Name: "other"},
			Spec: trivet.SecretSpec{Data: map[string]string{"password": moved}}}
		if _, err := secrets.Create(ctx, s); !errors.Is(err, trivet.ErrInvalid) {
			t.Errorf("a sealed value was moved to another secret: %v", err)
		}
	}
	if strings.Contains(h.log.String(), "hunter2") {
		t.Error("the log holds a secret")
	}
}

// A panic, an endless request and one that is cut off affect that request only.
func TestFailureOfOneRequest(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	ctx, cancel := context.WithCancel(t.Context())
	body := &endless{cancel: cancel}
	req := must(http.NewRequestWithContext(ctx, "POST", h.url+"/v1/machines", body))(t)
	req.Header.Set("Authorization", "Bearer "+h.admin)
	if resp, err := h.http().Do(req); err == nil {
		resp.Body.Close()
		if resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("status %d", resp.StatusCode)
		}
	}
	if body.n > 16<<20 {
		t.Errorf("%d bytes of an endless body were read", body.n)
	}
	if status, _ := h.ask(h.admin, "GET", "/livez", ""); status != 200 {
		t.Errorf("status %d", status)
	}
}

type endless struct {
	n      int
	cancel func()
}

func (e *endless) Read(b []byte) (int, error) {
	if e.n += len(b); e.n > 32<<20 {
		e.cancel()
	}
	for i := range b {
		b[i] = ' '
	}
	return len(b), nil
}

func kindInfo(t *testing.T, name string) trivet.KindInfo {
	t.Helper()
	return must(trivet.LookupKind(name))(t)
}
