package test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/testhead"
)

// A record that somebody changes between plan and apply is not written: the error says to refresh. A change of another
// label, or of the status, is no conflict.
func TestConflict(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := s.resource("trivet_machine")
	config := object{"name": "m1", "spec": "rack: r1\n", "labels": map[string]any{"a": "1"}}
	r.mustApply("create", config)
	for _, outside := range []string{`{"spec":{"rack":"r9"}}`, `{"labels":{"a":"9"}}`} {
		p, text := r.plan(config.with("spec", "rack: r2\n"))
		if text != "" {
			t.Fatal(text)
		}
		s.patch("machine", "", "m1", outside)
		before := must[trivet.Machine](s, "", "m1")
		text = r.change(r.ctx, p)
		for _, want := range []string{"update machine m1", "changed since Terraform has read it", "terraform plan"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the error does not contain %q: %s", outside, want, text)
			}
		}
		if now := must[trivet.Machine](s, "", "m1"); now.Revision != before.Revision {
			t.Errorf("%s: the record was written nevertheless: %+v", outside, now)
		}
		r.mustApply("update", config)
	}
	p, text := r.plan(config.with("spec", "rack: r2\n"))
	if text != "" {
		t.Fatal(text)
	}
	s.patch("machine", "", "m1", `{"labels":{"other":"x"}}`)
	if text := r.change(r.ctx, p); text != "" {
		t.Errorf("a label that the configuration does not set is a conflict: %s", text)
	}
	if now := must[trivet.Machine](s, "", "m1"); now.Spec.Rack != "r2" || now.Labels["other"] != "x" {
		t.Errorf("%+v", now)
	}
}

// What exists already is not created, and the error says how to import it. One that was deleted between plan and apply
// is a conflict, and one that was created again is not deleted.
func TestOfTheSameName(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.head.Apply("{kind: Machine, name: m1, spec: {rack: by-hand}}")
	r := s.resource("trivet_machine")
	config := object{"name": "m1", "spec": "rack: r1\n"}
	if _, text := r.apply(config); !strings.Contains(text, "exists already") ||
		!strings.Contains(text, "terraform import") {
		t.Errorf("creation of what exists: %q", text)
	}
	if r.exists() || must[trivet.Machine](s, "", "m1").Spec.Rack != "by-hand" {
		t.Error("what exists was adopted or changed")
	}
	if text := r.importID("m1"); text != "" {
		t.Fatal(text)
	}
	p, text := r.plan(config)
	if text != "" {
		t.Fatal(text)
	}
	s.head.MustTrivet("delete", "machine", "m1")
	if text := r.change(r.ctx, p); !strings.Contains(text, "it was deleted") || !strings.Contains(text, "terraform plan") {
		t.Errorf("update of what was deleted: %q", text)
	}
	s.head.Apply("{kind: Machine, name: m1, spec: {rack: by-hand}}")
	r.state = p.prior
	if text := r.read(); text != "" || !strings.Contains(s.log.String(), "machine m1 is another one now") ||
		r.get("uid") != must[trivet.Machine](s, "", "m1").UID {
		t.Errorf("created again outside: %q, uid %s", text, r.get("uid"))
	}
	r.state = p.prior
	r.mustDestroy()
	if s.isGone("machine", "", "m1") {
		t.Error("the machine of another UID was deleted")
	}
}

// A record that others refer to is not deleted, and the error has the head's hint. It is deleted when they end in time.
func TestDeletionRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := s.resource("trivet_template")
	config := object{"name": "t", "spec": noop}
	r.mustApply("create", config.with("timeouts", map[string]any{"delete": "1s"}))
	s.head.Apply("{kind: Provision, name: p, spec: {template: t, selector: {pool: web}}}")
	text := r.destroy()
	for _, want := range []string{"delete template t", "provision p refers to it", "Hint: "} {
		if !strings.Contains(text, want) {
			t.Errorf("the error does not contain %q: %s", want, text)
		}
	}
	if !r.exists() || s.isGone("template", "default", "t") {
		t.Error("it is deleted nevertheless")
	}
	refused := strings.Count(s.head.Log.String(), conflictLogged)
	var ending sync.WaitGroup
	ending.Go(func() {
		err := testhead.Eventually(t.Context(), func() error {
			if strings.Count(s.head.Log.String(), conflictLogged) == refused {
				return errors.New("the deletion was not refused once more")
			}
			return nil
		})
		if err == nil {
			err = s.records("provision").Delete(t.Context(), "p")
		}
		if err != nil {
			t.Error(err)
		}
	})
	defer ending.Wait()
	r.mustApply("update", config)
	r.mustDestroy()
}

// conflictLogged is in the head's log for each refused deletion of a template.
const conflictLogged = "/v1/projects/default/templates/t status=409"
