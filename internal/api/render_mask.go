package api

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
	"github.com/trivet-project/trivet/internal/auth"
)

// hiddenValue is shown instead of a value that may be secret.
const hiddenValue = "[hidden]"

// runMask hides what may be secret in a run that is shown before it exists: user-data and network-data, arguments and
// variables with the name of a secret, passwords in URLs, and the values of parameters with such a name in all texts.
type runMask struct{ secrets []string }

func newRunMask(parameters map[string]string) *runMask {
	m := &runMask{}
	for name, value := range parameters {
		m.add(name, value)
	}
	return m
}

// addDefaults adds the defaults of a template's parameters.
func (m *runMask) addDefaults(t *trivet.Template) {
	for _, p := range t.Spec.Parameters {
		if p.Default != nil {
			m.add(p.Name, *p.Default)
		}
	}
}

// add adds a parameter, with what functions of templates may make of its value.
func (m *runMask) add(name, value string) {
	if value == "" || !auth.IsSecretName(name) {
		return
	}
	quoted := strconv.Quote(value)
	for _, form := range []string{value, strings.ToLower(value), strings.ToUpper(value), quoted[1 : len(quoted)-1]} {
		if !slices.Contains(m.secrets, form) {
			m.secrets = append(m.secrets, form)
		}
	}
}

// urlPassword is the password in a URL.
var urlPassword = regexp.MustCompile(`(://[^\s/:@]*:)[^\s/@]+@`)

// text returns a text without secrets. Of two that begin at the same place, the longer one is replaced.
func (m *runMask) text(s string) string {
	slices.SortFunc(m.secrets, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	var pairs []string
	for _, secret := range m.secrets {
		pairs = append(pairs, secret, hiddenValue)
	}
	s = strings.NewReplacer(pairs...).Replace(s)
	return urlPassword.ReplaceAllString(auth.Redact(s), "${1}"+hiddenValue+"@")
}

// value returns an argument without secrets.
func (m *runMask) value(name string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key := range v {
			out[key] = m.value(key, v[key])
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = m.value(name, v[i])
		}
		return out
	case string:
		if v != "" && auth.IsSecretName(name) {
			return hiddenValue
		}
		return m.text(v)
	}
	return v
}

// hideInRun hides secrets in the spec of a run.
func (m *runMask) hideInRun(spec *trivet.WorkflowSpec) {
	for i, a := range spec.Actions {
		if a.With != nil {
			spec.Actions[i].With, _ = m.value("", a.With).(map[string]any)
		}
	}
	spec.Seed.UserData, spec.Seed.NetworkData = hiddenText(spec.Seed.UserData), hiddenText(spec.Seed.NetworkData)
}

func hiddenText(text string) string {
	if text == "" {
		return ""
	}
	return fmt.Sprintf("[%d bytes, hidden]", len(text))
}

// hideInError hides secrets in the problems of fields, which may quote values.
func (m *runMask) hideInError(template string, err error) error {
	var errs []error
	for _, f := range apitypes.FieldErrors(err) {
		errs = append(errs, &trivet.FieldError{Field: f.Field, Problem: m.text(f.Problem)})
	}
	if errs == nil {
		return err
	}
	return &trivet.Error{Op: "render", Kind: "Template", Name: template, Err: errors.Join(errs...)}
}
