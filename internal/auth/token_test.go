package auth

import (
	"errors"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
)

func TestTokenIsVerifiedByItsWholeText(t *testing.T) {
	id, plain, hash := NewToken()
	text := plain.Reveal()
	if got, err := ParseToken(text); err != nil || got != id {
		t.Fatalf("ParseToken: %q, %v; want %q", got, err, id)
	}
	if err := CheckToken(text, hash); err != nil {
		t.Fatal(err)
	}
	if err := trivet.ValidateName(id); err != nil {
		t.Errorf("the id must be a record's name: %v", err)
	}
	for i := range text {
		flipped := text[:i] + string(text[i]^1) + text[i+1:]
		if err := CheckToken(flipped, hash); !errors.Is(err, trivet.ErrUnauthenticated) {
			t.Errorf("token with byte %d changed: %v", i, err)
		}
	}
	for _, hash := range []string{"", "sha256:", strings.ToUpper(hash), hash + "0"} {
		if err := CheckToken(text, hash); err == nil {
			t.Errorf("CheckToken with hash %q: accepted", hash)
		}
	}
	other, _, _ := NewToken()
	if other == id {
		t.Error("two tokens of one id")
	}
}

func FuzzParseToken(f *testing.F) {
	_, plain, _ := NewToken()
	f.Add(plain.Reveal())
	f.Add("trivet__")
	f.Add("trivet_" + strings.Repeat("a", 16) + "_" + strings.Repeat("\x00", 52))
	f.Fuzz(func(t *testing.T, text string) {
		id, err := ParseToken(text)
		if err != nil {
			if !errors.Is(err, trivet.ErrUnauthenticated) || strings.Contains(err.Error(), text) && len(text) > 20 {
				t.Errorf("error: %v", err)
			}
			return
		}
		if trivet.ValidateName(id) != nil || !strings.HasPrefix(text, "trivet_"+id+"_") {
			t.Errorf("ParseToken(%q) = %q", text, id)
		}
	})
}

func TestRoles(t *testing.T) {
	const table = `
		admin    read   Machine yes
		admin    write  Account yes
		admin    reveal Secret  yes
		operator read   Machine yes
		operator read   Token   yes
		operator write  Machine yes
		operator write  Template yes
		operator write  Account no
		operator write  Token   no
		operator write  Secret  no
		operator write  Head    no
		operator write  Site    no
		operator reveal Secret  no
		viewer   read   Machine yes
		viewer   read   Site    yes
		viewer   write  Machine no
		viewer   reveal Secret  no
		none     read   Machine no
		admin    grant  Machine no`
	for line := range strings.Lines(strings.TrimSpace(table)) {
		f := strings.Fields(line)
		err := Allow(trivet.AccountRole(f[0]), Verb(f[1]), trivet.Kind(f[2]))
		if (err == nil) != (f[3] == "yes") || err != nil && !errors.Is(err, trivet.ErrForbidden) {
			t.Errorf("%s: %v", strings.TrimSpace(line), err)
		}
	}
}
