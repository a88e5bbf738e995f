package workflow_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/workflow"
)

func recipe(text string) *trivet.Template {
	def := "ext4"
	return &trivet.Template{Meta: trivet.Meta{Name: "t"}, Spec: trivet.TemplateSpec{
		Parameters: []trivet.Parameter{{Name: "image"}, {Name: "fs", Default: &def}},
		Actions: []trivet.Action{{Name: "a", Use: "file", With: map[string]any{
			"text": text, "list": []any{text, 7.0}, "on": true,
		}}},
	}}
}

var data = workflow.Data{
	Machine: workflow.MachineData{Name: "m1", Labels: map[string]string{"rack": "r1"}, MACs: []string{"aa", "bb"}},
	Params:  map[string]string{"image": "debian"},
}

func TestRender(t *testing.T) {
	for text, want := range map[string]string{
		"plain":                                 "plain",
		"{{.Machine.Name}}-{{.Params.image}}":   "m1-debian",
		"{{.Params.fs}}":                        "ext4",
		`{{join "," .Machine.MACs}}`:            "aa,bb",
		"{{range .Machine.MACs}}<{{.}}>{{end}}": "<aa><bb>",
		"{{.Machine.Labels.rack | upper}}":      "R1",
		`{{default "x" .Network.Domain}}`:       "x",
	} {
		tpl := recipe(text)
		if err := workflow.Check(tpl); err != nil {
			t.Errorf("check %q: %v", text, err)
		}
		actions, err := workflow.Render(tpl, data)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got := actions[0].With["text"]; got != want || actions[0].With["list"].([]any)[0] != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
		if tpl.Spec.Actions[0].With["text"] != text {
			t.Errorf("%q: the template itself was changed", text)
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"{{.Machine.Nmae}}":                 "uses .Machine.Nmae, which is not there",
		"{{.Params.nope}}":                  ".Params.nope, which is no parameter",
		"{{.Machine.Name.Length}}":          ".Machine.Name is a text",
		"{{if .Nope}}x{{end}}":              "uses .Nope",
		"{{range 1000000000}}{{end}}":       "ranges over something that is not a field",
		`{{range (len "xxxxxxxx")}}{{end}}`: "ranges over something",
		"{{define \"x\"}}{{end}}":           "defines a template",
		"{{template \"x\"}}":                "calls a template",
		"{{":                                "unclosed action",
		"{{nofunc 1}}":                      "nofunc",
		strings.Repeat("{{range .Machine.MACs}}", 3) + strings.Repeat("{{end}}", 3): "range in a range in a range",
		strings.Repeat("x", workflow.MaxSource) + "{{.Machine.Name}}":               "at most",
	} {
		err := workflow.Check(recipe(text))
		if !errors.Is(err, trivet.ErrInvalid) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "spec.actions[0].with") {
			t.Errorf("%.40q: %v; want it to say %q and where", text, err, want)
		}
	}
}

func TestRenderRefuses(t *testing.T) {
	if _, err := workflow.Render(recipe("x"), workflow.Data{}); err == nil || !strings.Contains(err.Error(), "spec.parameters.image is missing") {
		t.Errorf("a missing parameter: %v", err)
	}
	more := workflow.Data{Params: map[string]string{"image": "x", "typo": "y"}}
	if _, err := workflow.Render(recipe("x"), more); err == nil || !strings.Contains(err.Error(), "spec.parameters.typo") {
		t.Errorf("an unknown parameter: %v", err)
	}
	if _, err := workflow.Render(recipe("{{.Machine.Labels.nope}}"), data); !errors.Is(err, trivet.ErrInvalid) {
		t.Errorf("a missing label: %v", err)
	}
	long := workflow.Data{Params: map[string]string{"image": strings.Repeat("x", workflow.MaxText)}}
	if _, err := workflow.Render(recipe("{{.Params.image}}{{.Params.image}}"), long); err == nil || !strings.Contains(err.Error(), "grows beyond") {
		t.Errorf("a text without end: %v", err)
	}
}

func FuzzCheckedTextsRender(f *testing.F) {
	for _, seed := range []string{"{{.Machine.Name}}", "{{range .Machine.MACs}}{{.}}{{end}}", "{{with .Params}}{{.image}}{{end}}", "{{"} {
		f.Add(seed)
	}
	f.Fuzz(func(_ *testing.T, text string) {
		if tpl := recipe(text); workflow.Check(tpl) == nil {
			_, _ = workflow.Render(tpl, data) // ends, without a panic
		}
	})
}
