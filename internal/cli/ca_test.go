package cli

import (
	"bytes"
	"encoding/pem"
	"errors"
	"testing"

	"github.com/trivet-project/trivet"
)

// The forms of a CA hold the same certificate, and nothing else that a head may have sent.
func TestFormsOfTheCA(t *testing.T) {
	block := &pem.Block{Type: "CERTIFICATE", Bytes: []byte("der")}
	text := pem.EncodeToMemory(block)
	for form, want := range map[string]func(out []byte) bool{
		"pem": func(out []byte) bool { return bytes.Equal(out, text) },
		"der": func(out []byte) bool { return string(out) == "der" },
		"efi": func(out []byte) bool { return len(out) == 28+16+3 && bytes.HasSuffix(out, []byte("der")) },
	} {
		out, err := encodeCA(append([]byte("# a comment\n"), text...), form)
		if err != nil || !want(out) {
			t.Errorf("%s: %q, %v", form, out, err)
		}
	}
	for _, bad := range []string{"", "x", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY"}))} {
		if out, err := encodeCA([]byte(bad), "pem"); !errors.Is(err, trivet.ErrInvalid) {
			t.Errorf("%q: %q, %v", bad, out, err)
		}
	}
}
