package api

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
)

func TestRunMaskTexts(t *testing.T) {
	none := "open sesame 2"
	m := newRunMask(map[string]string{"dbPassword": "p", "PIN_PASSWORD": "12345", "luks_key": "open sesame",
		"privateNetwork": "10.0.0.0/24", "bypass": "bypassed"})
	m.text("before the defaults")
	m.addDefaults(&trivet.Template{Spec: trivet.TemplateSpec{Parameters: []trivet.Parameter{
		{Name: "old_key", Default: &none}, {Name: "disk"}}}})
	for text, want := range map[string]string{
		"echo p 12345 bypassed 10.0.0.0/24":       "echo p 12345 bypassed 10.0.0.0/24",
		"open sesame, OPEN SESAME, open sesame 2": "[hidden], [hidden], [hidden]",
		"http://u:pw@host/x http://u:p@ss@host":   "http://u:[hidden]@host/x http://u:[hidden]@host",
		"git clone https://t0ken@host:80/x":       "git clone https://[hidden]@host:80/x",
		"http://host:80 u@host http://host/a@b":   "http://host:80 u@host http://host/a@b",
		`curl "https://h/?access_token=t&a=b"`:    `curl "https://h/?access_token=[hidden]&a=b"`,
		`curl 'https://h/?a=b&api%5Fkey=t'`:       `curl 'https://h/?a=b&api%5Fkey=[hidden]'`,
		"https://h/?bypass=1&hostname=x#token=":   "https://h/?bypass=1&hostname=x#token=",
	} {
		if got := m.text(text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	replacer := m.replacer
	if m.text("another"); m.replacer != replacer {
		t.Error("each text has a replacer of its own")
	}
}

func TestRunMaskValues(t *testing.T) {
	spec := &trivet.WorkflowSpec{Actions: []trivet.Action{{With: map[string]any{
		"env":   map[string]any{"API_KEY": "a", "DB_PWD": "", "HOST": "h"},
		"words": []any{"a", map[string]any{"luksKey": []any{"k1", "k2"}, "psk": true, "pin_password": 1234.0, "key": nil}},
		"fast":  true, "retries": 3.0,
	}}}}
	m := newRunMask(nil)
	if err := m.hideInRun(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"env": map[string]any{"API_KEY": hiddenValue, "DB_PWD": "", "HOST": "h"},
		"words": []any{"a", map[string]any{"luksKey": hiddenValue, "psk": hiddenValue, "pin_password": hiddenValue,
			"key": nil}},
		"fast": true, "retries": 3.0,
	}
	if diff := cmp.Diff(want, spec.Actions[0].With); diff != "" {
		t.Error(diff)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.hideInRun(ctx, spec); !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("after the caller has gone: %v", err)
	}
}

// Of an error nothing is lost but secrets, whatever it is made of.
func TestRunMaskErrors(t *testing.T) {
	field := &trivet.FieldError{Field: "spec.mode", Problem: `is "hunter2"`}
	unconfirmed := &trivet.Error{Op: "update", Hint: "see the log",
		Err: fmt.Errorf("%w; not confirmed: %v", trivet.ErrUnavailable, field)}
	for _, c := range []struct {
		err          error
		is           error
		fields       int
		message, log string
	}{
		{field, trivet.ErrInvalid, 1, `spec.mode is "[hidden]"`, ""},
		{unconfirmed, trivet.ErrUnavailable, 0, `unavailable; not confirmed: spec.mode is "[hidden]" (see the log)`, ""},
		{errors.Join(field, errors.New("no room for hunter2")), trivet.ErrInvalid, 1, "no room for [hidden]", ""},
		{errors.New("panic at hunter2"), nil, 0, "internal error", "panic at [hidden]"},
	} {
		err := newRunMask(map[string]string{"password": "hunter2"}).hideInError("t", c.err)
		_, p := apitypes.NewProblem(err)
		if c.is != nil && !errors.Is(p, c.is) || len(p.Fields) != c.fields || !strings.HasSuffix(p.Error(), c.message) {
			t.Errorf("%v: %+v, want %s", c.err, p, c.message)
		}
		if !strings.Contains(err.Error(), c.log) || strings.Contains(fmt.Sprint(err, p, p.Fields), "hunter2") {
			t.Errorf("%v: %v", c.err, err)
		}
	}
}
