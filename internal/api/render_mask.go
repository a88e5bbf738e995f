package api

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
// variables with the name of a secret, passwords and tokens in URLs, and the values of parameters with such a name in
// all texts.
type runMask struct {
	secrets  map[string]bool
	replacer *strings.Replacer // of the secrets; nil: it is still to be made
}

func newRunMask(parameters map[string]string) *runMask {
	m := &runMask{secrets: map[string]bool{}}
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

// minSecret is how long a value must be, in bytes, to be hidden in texts. Shorter ones are in other words as well.
const minSecret = 6

// add adds a parameter, with what functions of templates may make of its value.
func (m *runMask) add(name, value string) {
	if len(value) < minSecret || !auth.IsSecretName(name) {
		return
	}
	quoted := strconv.Quote(value)
	for _, form := range []string{value, strings.ToLower(value), strings.ToUpper(value), quoted[1 : len(quoted)-1]} {
		m.secrets[form] = true
	}
	m.replacer = nil
}

// newReplacer returns a replacer of the secrets. Of two that begin at the same place, the longer one is replaced.
func (m *runMask) newReplacer() *strings.Replacer {
	var pairs []string
	for _, secret := range slices.SortedFunc(maps.Keys(m.secrets), func(a, b string) int { return len(b) - len(a) }) {
		pairs = append(pairs, secret, hiddenValue)
	}
	return strings.NewReplacer(pairs...)
}

var (
	// urlUser is a URL up to its host: with the password of a user, which may contain @, or a token in place of a user.
	urlUser = regexp.MustCompile(`(://(?:[^\s/?#:@]*:)?)[^\s/?#]*@`)
	// urlParameter is a parameter of a URL with its value.
	urlParameter = regexp.MustCompile(`[?&][^\s?&=#]+=[^\s&#"']*`)
)

// text returns a text without secrets.
func (m *runMask) text(s string) string {
	if m.replacer == nil {
		m.replacer = m.newReplacer()
	}
	s = urlUser.ReplaceAllString(auth.Redact(m.replacer.Replace(s)), "${1}"+hiddenValue+"@")
	return urlParameter.ReplaceAllStringFunc(s, func(parameter string) string {
		name, _, _ := strings.Cut(parameter, "=")
		if auth.IsSecretParameter(name[1:]) {
			return name + "=" + hiddenValue
		}
		return parameter
	})
}

// value returns an argument without secrets.
func (m *runMask) value(name string, v any) any {
	if v != nil && v != "" && auth.IsSecretName(name) {
		return hiddenValue
	}
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
		return m.text(v)
	}
	return v
}

// hideInRun hides secrets in the spec of a run, as long as someone waits for it.
func (m *runMask) hideInRun(ctx context.Context, spec *trivet.WorkflowSpec) error {
	for i, a := range spec.Actions {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
		}
		if a.With != nil {
			spec.Actions[i].With, _ = m.value("", a.With).(map[string]any)
		}
	}
	spec.Seed.UserData, spec.Seed.NetworkData = hiddenText(spec.Seed.UserData), hiddenText(spec.Seed.NetworkData)
	return nil
}

func hiddenText(text string) string {
	if text == "" {
		return ""
	}
	return fmt.Sprintf("[%d bytes, hidden]", len(text))
}

// hiddenError is an error in whose text secrets are hidden.
type hiddenError struct {
	text   string
	causes []error // the sentinel and the fields
}

func (e *hiddenError) Error() string { return e.text }

func (e *hiddenError) Unwrap() []error { return e.causes }

// hideInError hides secrets in an error, which may quote values. Its sentinel, its hint and its fields are kept.
func (m *runMask) hideInError(template string, err error) error {
	out := &trivet.Error{Op: "render", Kind: "Template", Name: template}
	text := err.Error()
	var detailed *trivet.Error
	if errors.As(err, &detailed) && detailed.Hint != "" {
		out.Hint = m.text(detailed.Hint)
		text = strings.Replace(text, " ("+detailed.Hint+")", "", 1)
	}
	hidden := &hiddenError{m.text(text), (&trivet.Problem{Code: trivet.CodeOf(err)}).Unwrap()}
	for _, f := range apitypes.FieldErrors(err) {
		hidden.causes = append(hidden.causes, &trivet.FieldError{Field: f.Field, Problem: m.text(f.Problem)})
	}
	out.Err = hidden
	return out
}
