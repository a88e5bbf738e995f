package cli

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/trivet-project/trivet"
)

func TestRecordsAreSentAfterWhatTheyReferTo(t *testing.T) {
	t.Parallel()
	var all []*manifest
	for _, kind := range []string{"Provision", "Site", "Machine", "Template", "Notifier", "Network", "Machine", "Secret",
		"Image", "Platform"} {
		info, err := kindOf(kind)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, &manifest{info: info})
	}
	first := all[2]
	byDependence(all)
	at := map[trivet.Kind]int{}
	for i, m := range all {
		at[m.info.Kind] = i
	}
	for after, before := range map[trivet.Kind][]trivet.Kind{
		"Provision": {"Template", "Machine", "Image"}, "Machine": {"Platform", "Secret", "Network"},
		"Template": {"Image"}, "Notifier": {"Secret"}, "Site": {"Platform"},
	} {
		for _, kind := range before {
			if at[kind] > at[after] {
				t.Errorf("%s is after %s", kind, after)
			}
		}
	}
	if at["Machine"] <= slices.Index(all, first) {
		t.Error("two records of one kind have changed places")
	}
}

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
	printError(&out, withFlags("p", missing, &provisionFlags{}))
	if want := "trivet: create provision p: spec.template is missing\n  hint: --template NAME; those that exist: trivet get " +
		"templates\n"; out.String() != want {
		t.Errorf("%s, want %s", out.String(), want)
	}
}
