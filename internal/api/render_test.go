package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/apitypes"
)

// renderHead is a head with a machine that can be claimed, one that cannot, and a template.
func renderHead(t *testing.T) *head {
	t.Helper()
	h := newHead(t)
	m1, m2 := machine("m1", "52:54:00:00:00:01"), machine("m2", "52:54:00:00:00:02")
	m1.Status.State, m2.Status.State = trivet.MachineAvailable, trivet.MachineQuarantined
	put(h, h.fleet.Machines, m1)
	put(h, h.fleet.Machines, m2)
	put(h, h.fleet.Templates, commandTemplate("stored", "echo {{.Machine.Name}} {{.Params.who}} {{.Params.dbPassword}}"))
	return h
}

// commandTemplate runs a script, and has a parameter that is required, and a secret one.
func commandTemplate(name, script string) *trivet.Template {
	none := "changeme"
	return &trivet.Template{Meta: trivet.Meta{Kind: "Template", Project: "default", Name: name},
		Spec: trivet.TemplateSpec{
			Parameters: []trivet.Parameter{{Name: "who"}, {Name: "dbPassword", Default: &none}},
			Actions: []trivet.Action{{Name: "one", Use: "command", Timeout: trivet.DefaultActionTimeout / 2,
				With: map[string]any{"script": script, "env": map[string]any{"API_TOKEN": "t0ken", "PROXY": "http://u:pw@proxy"}}}},
		}}
}

func renderRequest(template, machine string, params map[string]string) trivet.RenderRequest {
	return trivet.RenderRequest{Provision: trivet.Provision{Meta: trivet.Meta{Name: "test"}, Spec: trivet.ProvisionSpec{
		Template: template, Machine: machine, Parameters: params, UserData: "#cloud-config\npassword: hunter3\n"}}}
}

// A template renders as a claim renders it, and nothing is stored. What may be secret is hidden.
func TestRender(t *testing.T) {
	t.Parallel()
	h := renderHead(t)
	cl := h.client(h.account("op", "operator"))
	before := h.fleet.Store.Revision()
	req := renderRequest("stored", "m1", map[string]string{"who": "you", "dbPassword": "hunter2"})
	got, err := cl.Render(t.Context(), "default", req)
	if err != nil {
		t.Fatal(err)
	}
	w := got.Workflow
	if got.Waits != "" || w.Name != "test-1" || w.Spec.Machine != "m1" || len(w.Status.Steps) != 6 ||
		w.Status.Steps[5].Name != "one" || w.Status.Steps[5].Timeout != trivet.DefaultActionTimeout/2 {
		t.Errorf("the run: %+v", got)
	}
	if script := w.Spec.Actions[0].With["script"]; script != "echo m1 you [hidden]" {
		t.Errorf("script: %v", script)
	}
	text, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"hunter2", "hunter3", "t0ken", ":pw@"} {
		if strings.Contains(string(text), secret) {
			t.Errorf("%q is shown: %s", secret, text)
		}
	}
	// One that is not stored, in place of one that is.
	req.Template = commandTemplate("stored", "echo {{upper .Params.dbPassword}}")
	req.Provision.Spec.Parameters["dbPassword"] = "Hunter2"
	if got, err = cl.Render(t.Context(), "default", req); err != nil ||
		got.Workflow.Spec.Actions[0].With["script"] != "echo [hidden]" {
		t.Errorf("of the request: %+v, %v", got, err)
	}
	// A machine that is not free.
	got, err = cl.Render(t.Context(), "default", renderRequest("stored", "m2", map[string]string{"who": "you"}))
	if err != nil || got.Waits != "no machine is free: 1 quarantined" {
		t.Errorf("a machine in quarantine: %+v, %v", got, err)
	}
	if now := h.fleet.Store.Revision(); now != before {
		t.Errorf("revision %d, want %d: something was stored", now, before)
	}
	if _, err := client.Of[trivet.Workflow](cl).Get(t.Context(), "test-1"); err == nil {
		t.Error("the run was stored")
	}
}

// What is wrong is a field, without the values of secrets. It is not in the audit log.
func TestRenderRefuses(t *testing.T) {
	t.Parallel()
	h := renderHead(t)
	cl := h.client(h.admin)
	who := map[string]string{"who": "you"}
	image := commandTemplate("new", "true")
	image.Spec.Actions[0] = trivet.Action{Name: "one", Use: "image", With: map[string]any{"image": "os"}}
	mode := commandTemplate("new", "true")
	mode.Spec.Actions[0] = trivet.Action{Name: "one", Use: "file",
		With: map[string]any{"path": "/x", "content": "x", "mode": "{{.Params.dbPassword}}"}}
	many := map[string]string{}
	for i := range 40_000 {
		many[fmt.Sprint("key", i)] = fmt.Sprint("value", i)
	}
	before := h.fleet.Store.Revision()
	for _, c := range []struct {
		name           string
		req            trivet.RenderRequest
		template       *trivet.Template
		field, problem string
	}{
		{"a parameter is missing", renderRequest("stored", "m1", nil), nil, "spec.parameters.who", "is missing"},
		{"a parameter is unknown", renderRequest("stored", "m1", map[string]string{"who": "a", "dbPasword": "b"}), nil,
			"spec.parameters.dbPasword", "is not a parameter of template stored; did you mean dbPassword?"},
		{"no template", renderRequest("none", "m1", who), nil, "spec.template", "names template none"},
		{"no machine", renderRequest("stored", "", who), nil, "spec.machine", "name the machine to render for"},
		{"an undefined name", renderRequest("new", "m1", who), commandTemplate("new", "{{.Machine.Nam}}"),
			"spec.actions[0].with.script", ".Machine.Nam, which does not exist; did you mean Name?"},
		{"no image", renderRequest("new", "m1", who), image, "spec.actions[0].with.image",
			"names image os, which does not exist"},
		{"a secret in a problem", renderRequest("new", "m1", map[string]string{"who": "a", "dbPassword": "hunter2"}), mode,
			"spec.actions[0].with.mode", "[hidden]"},
		{"too many parameters", renderRequest("stored", "m1", many), nil, "spec.parameters", "at most 64"},
	} {
		c.req.Template = c.template
		ctx, cancel := context.WithTimeout(t.Context(), storeTimeout)
		_, err := cl.Render(ctx, "default", c.req)
		cancel()
		fields := apitypes.FieldErrors(err)
		if len(fields) != 1 || fields[0].Field != c.field || !strings.Contains(fields[0].Problem, c.problem) ||
			strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want %s %s", c.name, err, c.field, c.problem)
		}
	}
	if _, err := cl.Render(t.Context(), "default", renderRequest("stored", "m9", who)); err == nil ||
		!strings.Contains(err.Error(), "get machine m9: not found") {
		t.Errorf("a machine that does not exist: %v", err)
	}
	if now := h.fleet.Store.Revision(); now != before {
		t.Errorf("revision %d, want %d: something was stored: %q", now, before, h.audit(client.AuditOptions{}))
	}
	viewer := h.client(h.account("viewer", "viewer"))
	if _, err := viewer.Render(t.Context(), "default", renderRequest("stored", "m1", who)); !errors.Is(err,
		trivet.ErrForbidden) {
		t.Errorf("a viewer: %v", err)
	}
	if got := h.audit(client.AuditOptions{}); !slices.Equal(got, []string{"viewer render Provision/ forbidden"}) {
		t.Errorf("the audit log: %q", got)
	}
}
