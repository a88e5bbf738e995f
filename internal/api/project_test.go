package api_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/auth"
)

func templateOf(name, action string) *trivet.Template {
	return &trivet.Template{Meta: trivet.Meta{Name: name},
		Spec: trivet.TemplateSpec{Actions: []trivet.Action{{Name: action, Use: "noop"}}}}
}

// Records of one name in two projects have their own life, and a client chooses the project. Lists of all projects only
// can be read.
func TestProjects(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	ctx := t.Context()
	templates := client.Of[trivet.Template](h.client(h.admin))
	for project, action := range map[string]string{"default": "a", "blue": "b", "green": "c"} {
		created, err := templates.In(project).Create(ctx, templateOf("t", action))
		if err != nil || created.Project != project {
			t.Fatalf("%s: %+v, %v", project, created, err)
		}
	}
	if got, err := templates.Get(ctx, "t"); err != nil || got.Project != "default" || got.Spec.Actions[0].Name != "a" {
		t.Errorf("without a project: %+v, %v", got, err)
	}
	if _, err := templates.In("blue").Patch(ctx, "t", []byte(`{"labels":{"x":"y"}}`), 0); err != nil {
		t.Error(err)
	}
	for project, want := range map[string]string{"blue": "blue/t", "none": "", "": "blue/t default/t green/t"} {
		list, _, err := templates.In(project).List(ctx, client.ListOptions{Page: 1})
		if got := names(list); err != nil || got != want {
			t.Errorf("project %q has %s, %v; want %s", project, got, err, want)
		}
	}
	if err := templates.In("green").Delete(ctx, "t"); err != nil {
		t.Error(err)
	}
	if got, err := templates.In("blue").Get(ctx, "t"); err != nil || got.Labels["x"] != "y" {
		t.Errorf("blue/t: %+v, %v", got, err)
	}
	if got, err := templates.Get(ctx, "t"); err != nil || got.Labels["x"] != "" {
		t.Errorf("default/t: %+v, %v", got, err)
	}
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/v1/templates/t", "", 404, "/v1/projects/default/templates"},
		{"POST", "/v1/templates", `{"name":"x"}`, 404, "/v1/projects/default/templates"},
		{"GET", "/v1/projects/blue/machines", "", 404, "belong to no project"},
		{"GET", "/v1/projects/Blue/templates", "", 422, "project"},
		{"POST", "/v1/projects/blue/templates", `{"name":"x","project":"green","spec":{"actions":[]}}`, 422,
			"cannot be moved to another project"},
		{"POST", "/v1/machines", `{"name":"x","project":"blue"}`, 422, "belong to the cluster"},
		{"POST", "/v1/projects/blue/provisions", `{"name":"p","spec":{"template":"green/t","machine":"m"}}`, 422,
			"is in another project"},
		{"POST", "/v1/projects/blue/provisions", `{"name":"p","spec":{"template":"shared/t","machine":"m"}}`, 422,
			"names template shared/t, which does not exist"},
	} {
		status, got := h.ask(h.admin, c.method, c.path, c.body)
		if text := fmt.Sprint(got["message"], got["hint"]); status != c.status || !strings.Contains(text, c.want) {
			t.Errorf("%s %s %s: %d %s; want %d %s", c.method, c.path, c.body, status, text, c.status, c.want)
		}
	}
}

func names(list []*trivet.Template) string {
	var all []string
	for _, r := range list {
		all = append(all, r.FullName())
	}
	return strings.Join(all, " ")
}

// A watch of one project has the records of no other, but those of the cluster.
func TestWatchOfAProject(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	cl := h.client(h.admin)
	templates := client.Of[trivet.Template](cl)
	for _, project := range []string{"blue", "green"} {
		must(templates.In(project).Create(t.Context(), templateOf("t", "a")))(t)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var got []string
	o := client.WatchOptions{Kinds: []trivet.Kind{"Template", "Machine"}, Project: "blue"}
	for e, err := range cl.Watch(ctx, o) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == client.Synced {
			must(templates.In("green").Create(ctx, templateOf("u", "a")))(t)
			must(client.Of[trivet.Machine](cl).Create(ctx, machine("m1", macA)))(t)
			if err := errors.Join(templates.In("green").Delete(ctx, "t"), templates.In("blue").Delete(ctx, "t")); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if got = append(got, fmt.Sprint(e.Type, " ", trivet.FullName(e.Project, e.Name))); e.Type == client.Delete {
			break
		}
	}
	if want := []string{"put blue/t", "put m1", "delete blue/t"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A deletion asks who refers to the record of its project only. A machine names the project of its secret.
func TestDeletionInProjects(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	ctx := t.Context()
	cl := h.client(h.admin)
	templates, secrets := client.Of[trivet.Template](cl), client.Of[trivet.Secret](cl)
	for _, project := range []string{"blue", "green"} {
		must(templates.In(project).Create(ctx, templateOf("t", "a")))(t)
		must(secrets.In(project).Create(ctx, &trivet.Secret{Meta: trivet.Meta{Name: "bmc"}, Spec: trivet.SecretSpec{
			Data: map[string]string{"user": "u", "password": "p"}, Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}}))(t)
	}
	must(client.Of[trivet.Provision](cl).In("blue").Create(ctx, &trivet.Provision{Meta: trivet.Meta{Name: "p"},
		Spec: trivet.ProvisionSpec{Template: "t", Selector: map[string]string{"rack": "none"}}}))(t)
	m := machine("m1", macA)
	m.Spec.BMC = &trivet.BMC{Protocol: "ipmi", Address: "10.0.0.9", Secret: "bmc"}
	if _, err := client.Of[trivet.Machine](cl).Create(ctx, m); !errors.Is(err, trivet.ErrInvalid) {
		t.Errorf("a secret that is not in the default project: %v", err)
	}
	m.Spec.BMC.Secret = "blue/bmc"
	must(client.Of[trivet.Machine](cl).Create(ctx, m))(t)
	for what, c := range map[string]struct {
		err  error
		want string
	}{
		"template of blue":  {templates.In("blue").Delete(ctx, "t"), "provision blue/p refers to it"},
		"template of green": {templates.In("green").Delete(ctx, "t"), ""},
		"secret of blue":    {secrets.In("blue").Delete(ctx, "bmc"), "machine m1 refers to it"},
		"secret of green":   {secrets.In("green").Delete(ctx, "bmc"), ""},
	} {
		if (c.err == nil) != (c.want == "") || c.err != nil && !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", what, c.err, c.want)
		}
	}
	stored := must(h.fleet.Secrets.Get("blue/bmc"))(t).Spec.Data["user"]
	at := auth.FieldRef{Kind: "Secret", Name: "blue/bmc", Field: "user"}
	if v, err := h.keys.Sealer.Open(at, stored); err != nil || v.Reveal() != "u" {
		t.Errorf("the value cannot be opened: %v", err)
	}
	at.Name = "green/bmc"
	if _, err := h.keys.Sealer.Open(at, stored); err == nil {
		t.Error("the value can be opened as that of another project's secret")
	}
}

// A merge patch that names another project changes nothing: what it refers to would be looked up there, and its values
// sealed for there. One that leaves the project out is one of the record's project.
func TestPatchNamesItsProject(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	ctx := t.Context()
	cl := h.client(h.admin)
	templates, provisions := client.Of[trivet.Template](cl), client.Of[trivet.Provision](cl).In("blue")
	must(templates.In("blue").Create(ctx, templateOf("t", "a")))(t)
	must(templates.In("green").Create(ctx, templateOf("other", "a")))(t)
	must(templates.Create(ctx, templateOf("third", "a")))(t)
	must(provisions.Create(ctx, &trivet.Provision{Meta: trivet.Meta{Name: "p"},
		Spec: trivet.ProvisionSpec{Template: "t", Selector: map[string]string{"rack": "none"}}}))(t)
	must(client.Of[trivet.Secret](cl).In("blue").Create(ctx, &trivet.Secret{Meta: trivet.Meta{Name: "bmc"},
		Spec: trivet.SecretSpec{Data: map[string]string{"user": "u", "password": "p"}}}))(t)
	must(client.Of[trivet.Machine](cl).Create(ctx, machine("m1", macA)))(t)
	for _, c := range []struct {
		path, patch, want string
	}{
		{"projects/blue/provisions/p", `{"project":"green","spec":{"template":"other"}}`, "cannot be moved"},
		{"projects/blue/provisions/p", `{"project":null,"spec":{"template":"third"}}`, "does not exist"},
		{"projects/blue/secrets/bmc", `{"project":"green","spec":{"data":{"user":"u"}}}`, "cannot be moved"},
		{"machines/m1", `{"project":"green","labels":{"x":"y"}}`, "belong to the cluster"},
		{"projects/blue/secrets/bmc", `{"project":null,"spec":{"data":{"user":"u"}}}`, ""},
		{"projects/blue/provisions/p", `{"project":"blue","labels":{"x":"y"}}`, ""},
	} {
		status, got := h.ask(h.admin, "PATCH", "/v1/"+c.path, c.patch, "Content-Type: "+trivet.MediaMergePatch)
		text := fmt.Sprint(got["message"])
		if c.want == "" && status != http.StatusOK || c.want != "" && (status != 422 || !strings.Contains(text, c.want)) {
			t.Errorf("%s %s: %d %s; want %q", c.path, c.patch, status, text, c.want)
		}
	}
	stored := must(h.fleet.Secrets.Get("blue/bmc"))(t).Spec.Data["user"]
	at := auth.FieldRef{Kind: "Secret", Name: "blue/bmc", Field: "user"}
	if v, err := h.keys.Sealer.Open(at, stored); err != nil || v.Reveal() != "u" {
		t.Errorf("the value cannot be opened: %v", err)
	}
}

// The logs of runs of one name in two projects are two logs, and the audit log names the project.
func TestLogsOfProjects(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	cl := h.client(h.admin)
	for _, project := range []string{"blue", "green"} {
		put(h, h.fleet.Workflows, &trivet.Workflow{Meta: trivet.Meta{Project: project, Name: "w"},
			Spec:   trivet.WorkflowSpec{Machine: "m1", Actions: []trivet.Action{{Name: "a", Use: "noop"}}},
			Status: trivet.WorkflowStatus{State: trivet.WorkflowSucceeded}})
		key := trivet.LogKey{Action: "a", Epoch: 1, Attempt: 1}
		if err := h.logs.Append(project+"/w", key, 0, []byte("of "+project)); err != nil {
			t.Fatal(err)
		}
		must(client.Of[trivet.Template](cl).In(project).Create(t.Context(), templateOf("t", "a")))(t)
	}
	for _, project := range []string{"blue", "green"} {
		for p, err := range cl.Logs(t.Context(), "w", client.LogOptions{Project: project}) {
			if err != nil || p.Text != "of "+project {
				t.Errorf("%s: %q, %v", project, p.Text, err)
			}
		}
		page, err := cl.Audit(t.Context(), client.AuditOptions{Kind: "template", Project: project, Name: "t"})
		if err != nil || len(page.Items) != 1 || page.Items[0].Project != project || page.Items[0].Action != "create" {
			t.Errorf("the audit log of %s: %+v, %v", project, page.Items, err)
		}
	}
	if status, _ := h.ask(h.admin, "GET", "/v1/projects/red/workflows/w/logs", ""); status != http.StatusNotFound {
		t.Errorf("a project without the run: %d", status)
	}
}
