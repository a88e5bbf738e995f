package auth

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trivet-project/trivet"
)

func bootToken() BootToken {
	return BootToken{Purpose: PurposeBoot, Machine: "rack-7.m1", MAC: "52:54:00:12:34:56", Epoch: 7,
		Run: "7GHJ2KQ3X4Y5Z6A7B2C3D4E5F6", Expires: day.Add(time.Hour).Local()}
}

func TestBootToken(t *testing.T) {
	keys := newKeys(t, "c1")
	text, err := keys.SignBoot(bootToken())
	if err != nil {
		t.Fatal(err)
	}
	got, err := keys.VerifyBoot(PurposeBoot, text, day)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(bootToken(), got); diff != "" {
		t.Error(diff)
	}
	if strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~:") != "" ||
		len(text) > 200 {
		t.Errorf("not fit for a URL or command line: %q", text)
	}
	refused := map[string]func() (BootToken, error){
		"another purpose": func() (BootToken, error) { return keys.VerifyBoot(PurposeMetadata, text, day) },
		"expired":         func() (BootToken, error) { return keys.VerifyBoot(PurposeBoot, text, day.Add(time.Hour)) },
		"another cluster": func() (BootToken, error) { return newKeys(t, "c1").VerifyBoot(PurposeBoot, text, day) },
		"empty":           func() (BootToken, error) { return keys.VerifyBoot(PurposeBoot, "", day) },
		"signature cut":   func() (BootToken, error) { return keys.VerifyBoot(PurposeBoot, text[:len(text)-1], day) },
		"signature only": func() (BootToken, error) {
			return keys.VerifyBoot(PurposeBoot, "~"+bootMAC(keys.Ring(trivet.BootKey).First(), ""), day)
		},
		"signed, not ours": func() (BootToken, error) {
			return keys.VerifyBoot(PurposeBoot, "tb1~x~"+bootMAC(keys.Ring(trivet.BootKey).First(), "tb1~x"), day)
		},
	}
	for name, verify := range refused {
		if _, err := verify(); !errors.Is(err, trivet.ErrUnauthenticated) {
			t.Errorf("%s: %v; want ErrUnauthenticated", name, err)
		}
	}
	for i := range text {
		if _, err := keys.VerifyBoot(PurposeBoot, text[:i]+string(text[i]^1)+text[i+1:], day); err == nil {
			t.Errorf("accepted with byte %d (%c) changed", i, text[i])
		}
	}
}

func TestSignBootRefuses(t *testing.T) {
	keys := newKeys(t, "c1")
	for name, spoil := range map[string]func(*BootToken){
		"machine": func(b *BootToken) { b.Machine = "a~b" },
		"mac":     func(b *BootToken) { b.MAC = "52-54-00-12-34-56" },
		"purpose": func(b *BootToken) { b.Purpose = "root" },
		"epoch":   func(b *BootToken) { b.Epoch = -1 },
	} {
		b := bootToken()
		spoil(&b)
		if text, err := keys.SignBoot(b); !errors.Is(err, trivet.ErrInvalid) {
			t.Errorf("%s: %q, %v; want ErrInvalid", name, text, err)
		}
	}
}

// What parses is exactly what body writes: no second text for a token, also under a valid signature.
func FuzzVerifyBoot(f *testing.F) {
	keys, err := Init(filepath.Join(f.TempDir(), "keys"), "c1")
	if err != nil {
		f.Fatal(err)
	}
	body, err := bootToken().body()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Add("tb1~boot~m~525400123456~07~1")
	f.Add("tb1~boot~m~525400123456~+7~99999999999999999999")
	f.Add("tb1~~~~~")
	f.Fuzz(func(t *testing.T, body string) {
		token := body + "~" + bootMAC(keys.Ring(trivet.BootKey).First(), body)
		b, err := keys.VerifyBoot(PurposeBoot, token, time.Unix(0, 0))
		if err != nil {
			return
		}
		if again, err := keys.SignBoot(b); err != nil || again != token {
			t.Errorf("%q became %q, %v", body, again, err)
		}
	})
}
