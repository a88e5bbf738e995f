package test

import (
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
)

// The values of a secret are written, compared at the head, and in no state, plan, log or diagnostic.
func TestSecretData(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const first, second, third = "first-value-of-secret", "second-value-of-secret", "third-value-of-secret"
	r := s.resource("trivet_secret")
	config := object{"name": "bmc", "spec": "addresses: [10.0.8.0/24]\n",
		"data": map[string]any{"user": "root", "password": first}}
	r.mustApply("create", config)
	stored := func() int64 { return must[trivet.Secret](s, "default", "bmc").Generation }
	created := stored()
	r.mustApply("update", config.with("data", map[string]any{"password": second}))
	if got := must[trivet.Secret](s, "default", "bmc").Spec.Data; len(got) != 1 || got["password"] == "" {
		t.Errorf("keys after the update: %v", got)
	}
	if stored() == created {
		t.Error("a new value was not written")
	}
	config = config.with("data", map[string]any{"password": second})
	s.head.Apply("{kind: Secret, name: bmc, spec: {data: {password: " + third + "}, addresses: [10.0.8.0/24]}}")
	r.mustApply("update", config)
	before := stored()
	r.mustApply("update", config.with("data", nil, "labels", map[string]any{"a": "b"}))
	if stored() != before {
		t.Error("a configuration without data changed it")
	}
	text := r.validate(config.with("spec", "data: {password: "+first+"}\n"))
	if !strings.Contains(text, "attribute data") {
		t.Errorf("data in spec: %q", text)
	}
	_, _ = r.apply(config.with("data", map[string]any{"bad key!": second}))
	p, _ := r.plan(config)
	for _, where := range []string{r.state.String(), p.planned.String(), string(p.private), string(r.private),
		s.log.String(), s.head.Log.String()} {
		for _, value := range []string{first, second, third} {
			if strings.Contains(where, value) {
				t.Errorf("%s is in: %s", value, where)
			}
		}
	}
	if !strings.Contains(s.log.String(), "Calling provider defined Resource") {
		t.Error("the log has nothing, so the test proves nothing")
	}
	if token := s.head.Credential().Token; strings.Contains(s.log.String(), token) {
		t.Error("the provider's token is in its log")
	}
	r.mustDestroy()
}
