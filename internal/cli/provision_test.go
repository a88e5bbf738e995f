package cli

import (
	"bytes"
	"errors"
	"testing"

	"github.com/trivet-project/trivet"
)

// Only a hint for the flags is added to what the head refuses; other errors stay as they are.
func TestOnlyErrorsOfFieldsAreOfFlags(t *testing.T) {
	t.Parallel()
	for _, err := range []error{errors.New("dial tcp: refused"), &trivet.Problem{Code: "forbidden", Message: "no"}} {
		if got := withFlags("p", err, &provisionFlags{}); got != err {
			t.Errorf("%v has become %v", err, got)
		}
	}
	missing := &trivet.FieldError{Field: "spec.template", Problem: "is missing"}
	var out bytes.Buffer
	PrintError(&out, withFlags("p", missing, &provisionFlags{}))
	if want := "trivet: create provision p: spec.template is missing\n  hint: --template NAME; those that exist: trivet get " +
		"templates\n"; out.String() != want {
		t.Errorf("%s, want %s", out.String(), want)
	}
}
