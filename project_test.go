package trivet_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
)

func TestProjectNames(t *testing.T) {
	for _, project := range []string{"default", "shared", "a", "team-1", "0", strings.Repeat("a", trivet.MaxProject)} {
		if err := trivet.ValidateProject(project); err != nil {
			t.Errorf("%q: %v", project, err)
		}
	}
	for _, project := range []string{"", "-a", "a-", "A", "a.b", "a/b", "a:b", "..", "a_b", "ä",
		strings.Repeat("a", trivet.MaxProject+1)} {
		if err := trivet.ValidateProject(project); !errors.Is(err, trivet.ErrInvalid) {
			t.Errorf("%q: %v, want an error", project, err)
		}
	}
}

// A kind has records of projects or of the cluster.
func TestScopes(t *testing.T) {
	inProjects := map[trivet.Kind]bool{"Template": true, "Image": true, "Provision": true, "Workflow": true,
		"Secret": true}
	for _, k := range trivet.Kinds {
		with, without := k.ValidateProject("blue"), k.ValidateProject("")
		if (with == nil) != inProjects[k.Kind] || (without == nil) == inProjects[k.Kind] {
			t.Errorf("%s: with a project %v, without one %v", k.Kind, with, without)
		}
	}
}

// A name in a field is one of the record's own project, of the library, or of the project that it names. The name that
// is shown is resolved to the same record.
func TestResolve(t *testing.T) {
	for _, c := range []struct{ project, name, want string }{
		{"blue", "t", "blue/t"}, {"blue", "shared/t", "shared/t"}, {"default", "t", "default/t"},
		{"", "t", "default/t"}, {"", "blue/t", "blue/t"}, {"shared", "t", "shared/t"},
	} {
		full := trivet.Resolve(c.project, c.name)
		if full != c.want || trivet.Resolve("", trivet.ShortName(full)) != full ||
			c.project != "" && trivet.RelativeName(c.project, full) != c.name {
			t.Errorf("%s of %q is %s (%s, %s), want %s", c.name, c.project, full, trivet.ShortName(full),
				trivet.RelativeName(c.project, full), c.want)
		}
	}
}

// A record of a project refers to its own project and to the library; one of the cluster to any project.
func TestReferencesToProjects(t *testing.T) {
	provision := func(template string) error {
		p := &trivet.Provision{Meta: trivet.Meta{Project: "blue", Name: "p"},
			Spec: trivet.ProvisionSpec{Template: template, Machine: "m1"}}
		return p.Validate()
	}
	template := func(image string) error {
		s := &trivet.Template{Meta: trivet.Meta{Project: "blue", Name: "t"}, Spec: trivet.TemplateSpec{
			Actions: []trivet.Action{{Name: "image", Use: "image", With: map[string]any{"image": image}}}}}
		return s.Validate()
	}
	machine := func(secret string) error {
		m := &trivet.Machine{Meta: trivet.Meta{Name: "m1"}, Spec: trivet.MachineSpec{
			BMC: &trivet.BMC{Protocol: "ipmi", Address: "10.0.0.1", Secret: secret}}}
		return m.Validate()
	}
	for _, c := range []struct {
		what string
		err  error
		want string
	}{
		{"own template", provision("t"), ""},
		{"template of the library", provision("shared/t"), ""},
		{"template of another project", provision("green/t"), "is in another project"},
		{"own image", template("i"), ""},
		{"image of the library", template("shared/i"), ""},
		{"image of a parameter", template("{{.Params.image}}/x"), ""},
		{"image of another project", template("green/i"), "is in another project"},
		{"secret of the default project", machine("bmc"), ""},
		{"secret of a project", machine("green/bmc"), ""},
		{"secret of no project", machine("/bmc"), "spec.bmc.secret"},
		{"secret with two projects", machine("a/b/bmc"), "spec.bmc.secret"},
	} {
		if c.want == "" && c.err != nil || c.want != "" &&
			(!errors.Is(c.err, trivet.ErrInvalid) || !strings.Contains(c.err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.what, c.err, c.want)
		}
	}
}
