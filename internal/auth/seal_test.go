package auth

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/keyring"
)

var bmcPassword = FieldRef{Kind: "Secret", Name: "bmc", Field: "spec.password"}

func sealer(keys ...keyring.Key) *Sealer { return NewSealer(keyring.Of(keys[0], keys[1:]...)) }

func TestSealedOpensOnlyInItsPlace(t *testing.T) {
	s := sealer(keyring.New())
	text, err := s.Seal(bmcPassword, "hunter2", "")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Open(bmcPassword, text); err != nil || got.Reveal() != "hunter2" {
		t.Fatalf("Open: %q, %v", got.Reveal(), err)
	}
	for _, at := range []FieldRef{{"Token", "bmc", "spec.password"}, {"Secret", "bmc2", "spec.password"},
		{"Secret", "bmc", "status"},
		{"Secretb", "mc", "spec.password"}, {}} {
		if _, err := s.Open(at, text); !errors.Is(err, trivet.ErrInvalid) {
			t.Errorf("opened in %s: %v", at, err)
		}
	}
	for i := range text {
		if got, err := s.Open(bmcPassword, text[:i]+string(text[i]^1)+text[i+1:]); err == nil {
			t.Errorf("opened with byte %d changed: %q", i, got.Reveal())
		}
	}
	again, _ := s.Seal(bmcPassword, "hunter2", "")
	if again == text {
		t.Error("the same secret seals to the same text")
	}
	if _, err := s.Seal(bmcPassword, Secret(make([]byte, MaxSealed+1)), ""); !errors.Is(err, trivet.ErrTooLarge) {
		t.Errorf("seal too much: %v", err)
	}
	if largest, err := s.Seal(bmcPassword, Secret(make([]byte, MaxSealed)), ""); err != nil {
		t.Error(err)
	} else if _, err := s.Open(bmcPassword, largest); err != nil {
		t.Errorf("open the largest: %v", err)
	}
}

func TestSealingKeyRotation(t *testing.T) {
	one, two := keyring.New(), keyring.New()
	old, err := sealer(one).Seal(bmcPassword, "hunter2", "")
	if err != nil {
		t.Fatal(err)
	}
	given, turned, done := sealer(one, two), sealer(two, one), sealer(two)
	fresh, err := turned.Seal(bmcPassword, "hunter2", "")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		s    *Sealer
		text string
		ok   bool
	}{
		"new key given, opens old": {given, old, true},
		"new key given, opens new": {given, fresh, true},
		"turned, opens old":        {turned, old, true},
		"old dropped, opens new":   {done, fresh, true},
		"old dropped, opens old":   {done, old, false},
	} {
		if id, missing := c.s.MissingKey(c.text); missing == c.ok || missing && id != one.ID().String() {
			t.Errorf("%s: key %q is missing: %v", name, id, missing)
		}
		if _, err := c.s.Open(bmcPassword, c.text); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzOpen(f *testing.F) {
	s := sealer(keyring.New())
	good, err := s.Seal(bmcPassword, "hunter2", "")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add("sealed:v1:")
	f.Add(good[:30])
	f.Fuzz(func(t *testing.T, text string) {
		got, err := s.Open(bmcPassword, text)
		if err == nil && got != "hunter2" {
			t.Errorf("opened %q as %q", text, got.Reveal())
		}
		if err != nil && !errors.Is(err, trivet.ErrInvalid) && !errors.Is(err, trivet.ErrTooLarge) {
			t.Errorf("error: %v", err)
		}
	})
}

func TestSecretDoesNotShow(t *testing.T) {
	type login struct {
		User     string
		Password Secret
		Map      map[string]Secret
	}
	in := login{"root", "hunter2", map[string]Secret{"k": "hunter2"}}
	var shown []string
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%T %v"} {
		shown = append(shown, fmt.Sprintf(verb, in), fmt.Sprintf(verb, in.Password), fmt.Sprintf(verb, &in.Password))
	}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "p", in.Password, "in", in)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "p", in.Password, "in", in)
	j, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	y, err := yaml.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	shown = append(shown, log.String(), string(j), string(y))
	hexed := fmt.Sprintf("%x", "hunter2")
	for _, s := range shown {
		if strings.Contains(s, "hunter2") || strings.Contains(s, hexed) {
			t.Errorf("shown: %s", s)
		}
	}
	var out login
	if err := json.Unmarshal([]byte(`{"User":"root","Password":"hunter2"}`), &out); err != nil ||
		out.Password.Reveal() != "hunter2" {
		t.Errorf("read from JSON: %q, %v", out.Password.Reveal(), err)
	}
}

func TestSecretNames(t *testing.T) {
	for _, name := range []string{"password", "dbPassword", "DB_PASS", "rootpass", "pass_1", "DB_PWD", "PSK", "wifi-psk",
		"API_KEY", "API_KEY_2", "apiKeys", "api-key", "ACCESS_KEY", "accessKey", "LUKS_KEY", "lukskey", "private",
		"privateKey", "key", "sig", "X-Auth-Token", "X-Amz-Security-Token", "clientSecret", "Authorization", "Cookie"} {
		if !IsSecretName(name) {
			t.Errorf("%s is shown", name)
		}
	}
	for _, name := range []string{"bypass", "BYPASS", "noBypass", "privateNetwork", "private_cidr", "keyboard",
		"hostname", "disk", "passive", "design", ""} {
		if IsSecretName(name) {
			t.Errorf("%s is hidden", name)
		}
	}
}

func TestRedact(t *testing.T) {
	keys := newKeys(t, "c1")
	id, plain, _ := NewToken()
	boot, err := keys.SignBoot(bootToken())
	if err != nil {
		t.Fatal(err)
	}
	agent := signed(t, "/x", "").Header.Get("Authorization")
	secrets := []string{plain.Reveal()[len("trivet_")+idLen+1:], boot[strings.LastIndexAny(boot, "~.")+1:],
		agent[strings.Index(agent, "sig=")+4:], "hunter2"}
	u, err := url.Parse("https://root:hunter2@h/boot/" + boot +
		"/x?token=hunter2&a=b&X-Amz-Signature=hunter2&%zz=hunter2&t=" + plain.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{"Authorization": {"Bearer " + plain.Reveal(), agent, "hunter2"}, "Cookie": {"s=hunter2"},
		"X-Auth-Token": {"hunter2"}, "Accept": {"text/html"}, "Referer": {"/boot/" + boot}}
	texts := []string{
		Redact("console=ttyS0 trivet.token=" + boot + " trivet.head=10.0.0.1"),
		Redact("login with " + plain.Reveal() + ", then " + agent),
		RedactURL(u),
		fmt.Sprint(RedactHeader(h)),
	}
	for _, text := range texts {
		for _, s := range secrets {
			if strings.Contains(text, s) {
				t.Errorf("%q shown in %s", s, text)
			}
		}
	}
	all := strings.Join(texts, "\n")
	for _, keep := range []string{"console=ttyS0", "trivet.head=10.0.0.1", "tb1~boot~rack-7.m1~525400123456~7~", id,
		"a=b", "text/html",
		"root:", "machine=m1", "Bearer "} {
		if !strings.Contains(all, keep) {
			t.Errorf("%q lost in %s", keep, all)
		}
	}
	if h.Get("Cookie") != "s=hunter2" || u.User.String() != "root:hunter2" {
		t.Error("the input was changed")
	}
}
