package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/trivet-project/trivet/internal/auth"
)

// A credential is in no line of the log, wherever in an attribute it is.
func TestLogHasNoCredentials(t *testing.T) {
	_, token, _ := auth.NewToken()
	plain := token.Reveal()
	type nested struct{ URL, Token string }
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		log, err := newLogger(&out, "debug", format)
		if err != nil {
			t.Fatal(err)
		}
		log = log.With("from", "x-"+plain).WithGroup("g")
		log.Debug("a message with "+plain, "text", "Bearer "+plain, "error", errors.New("no such: "+plain),
			"list", []string{"a", plain}, "bytes", []byte(plain), "value", nested{"/x", plain},
			"pointer", &nested{"/x", plain}, "secret", token)
		if strings.Contains(out.String(), plain[30:]) || !strings.Contains(out.String(), "a message with trivet_") {
			t.Errorf("%s: %s", format, out.String())
		}
	}
}
