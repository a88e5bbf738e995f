package test

import (
	"errors"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// use returns what the head answers to a token.
func (s *site) use(token string) error {
	s.Helper()
	cfg := s.head.Credential()
	c, err := client.New(client.Config{Endpoints: []string{s.head.API()}, Trust: cfg.Trust, Token: token})
	if err != nil {
		s.Fatal(err)
	}
	defer c.Close()
	who, err := c.Whoami(s.Context())
	if err == nil && who.Account != "ci" {
		s.Errorf("the token is of account %s", who.Account)
	}
	return err
}

// A token is issued, works, is replaced for another expiry, is created again when somebody revokes it, and is revoked.
func TestToken(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.head.Apply("{kind: Account, name: ci, spec: {role: viewer}}")
	r := s.resource("trivet_token")
	config := object{"account": "ci"}
	r.mustApply("create", config)
	first, value := r.get("name"), r.get("value")
	if err := s.use(value); err != nil {
		t.Errorf("the token does not work: %v", err)
	}
	r.mustApply("replace", config.with("expires", "2099-01-31T00:00:00Z"))
	if err := s.use(value); !errors.Is(err, trivet.ErrUnauthenticated) || !s.isGone("token", "", first) {
		t.Errorf("the replaced token: %v", err)
	}
	r.mustApply("update", config.with("expires", "2099-01-31T01:00:00+01:00"))
	config = config.with("never", true)
	r.mustApply("replace", config)
	if r.get("expires") != "" || !must[trivet.Token](s, "", r.get("name")).Spec.Expires.IsZero() {
		t.Errorf("a token that never expires expires at %q", r.get("expires"))
	}
	imported := s.resource("trivet_token")
	if text := imported.importID(r.get("name")); text != "" || imported.get("value") != "<null>" {
		t.Errorf("import: %q, value %s", text, imported.get("value"))
	}
	imported.mustBeDone(config)
	s.head.MustTrivet("token", "revoke", r.get("name"), "--yes")
	if text := r.read(); text != "" || r.exists() {
		t.Errorf("revoked outside: %q, in the state: %v", text, r.exists())
	}
	r.mustApply("create", config)
	value = r.get("value")
	r.mustDestroy()
	if err := s.use(value); !errors.Is(err, trivet.ErrUnauthenticated) {
		t.Errorf("the token after its destruction: %v", err)
	}
	if strings.Contains(s.log.String(), value) || strings.Contains(s.head.Log.String(), value) {
		t.Error("the token is in a log")
	}
}

func TestTokenRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := s.resource("trivet_token")
	for _, c := range []struct {
		config object
		want   string
	}{
		{object{"account": "absent"}, "account absent: not found"},
		{object{"account": "admin", "expires": "tomorrow"}, "write one such as 2030-01-31T00:00:00Z"},
		{object{"account": "admin", "expires": "2000-01-01T00:00:00Z"}, "is in the past"},
		{object{"account": "admin", "expires": "2099-01-01T00:00:00Z", "never": true}, "excludes expires"},
	} {
		if _, text := r.apply(c.config); !strings.Contains(text, c.want) || r.exists() {
			t.Errorf("%v: %q; want %q", c.config, text, c.want)
		}
	}
	if text := r.importID("Not A Name"); !strings.Contains(text, "trivet get tokens") {
		t.Errorf("import of a wrong ID: %q", text)
	}
}
