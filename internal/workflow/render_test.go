package workflow_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/workflow"
)

func recipe(text string) *trivet.Template {
	def := "ext4"
	return &trivet.Template{Meta: trivet.Meta{Project: "default", Name: "t"}, Spec: trivet.TemplateSpec{
		Parameters: []trivet.Parameter{{Name: "image"}, {Name: "fs", Default: &def}},
		Actions: []trivet.Action{{Name: "a", Use: "container", With: map[string]any{
			"ref": "tool@sha256:" + strings.Repeat("0", 64), "ca": text, "args": []any{text, 7.0}, "devices": true,
		}}},
	}}
}

var data = workflow.Data{
	Machine: workflow.MachineData{Name: "m1", Labels: map[string]string{"rack": "r1"}, MACs: []string{"aa", "bb"}},
	Params:  map[string]string{"image": "debian"},
}

// Finding the images of a template is bounded as its rendering is: over all actions.
func TestNamedImagesAreBounded(t *testing.T) {
	big := &trivet.Template{Meta: trivet.Meta{Project: "default", Name: "t"},
		Spec: trivet.TemplateSpec{Parameters: []trivet.Parameter{{Name: "a"}}}}
	const actions = 100
	for range actions {
		big.Spec.Actions = append(big.Spec.Actions, trivet.Action{Use: "image",
			With: map[string]any{"image": "{{if lower .Params.a}}debian{{end}}"}})
	}
	small := workflow.NamedImages(big, map[string]string{"a": "x"})
	large := workflow.NamedImages(big, map[string]string{"a": strings.Repeat("x", workflow.MaxWork/20)})
	if len(small) != actions || len(large) == 0 || len(large) > 10 {
		t.Errorf("%d names, and %d where each costs a tenth of what all may cost", len(small), len(large))
	}
}

func TestRender(t *testing.T) {
	for text, want := range map[string]string{
		"plain":                                 "plain",
		"{{.Machine.Name}}-{{.Params.image}}":   "m1-debian",
		"{{.Params.fs}}":                        "ext4",
		`{{join "," .Machine.MACs}}`:            "aa,bb",
		"{{range .Machine.MACs}}<{{.}}>{{end}}": "<aa><bb>",
		"{{$m := .Machine.MACs}}{{range $i, $x := $m}}{{$i}}{{$x}}{{break}}{{end}}":            "0aa",
		"{{range $k, $v := .Machine.Labels}}{{$k}}={{$v}}{{end}}":                              "rack=r1",
		"{{range $.Machine.MACs}}{{else}}none{{end}}{{range .Network.DNS}}{{else}}none{{end}}": "none",
		"{{.Machine.Labels.rack | upper}}":                                                     "R1",
		`{{default "x" .Network.Domain}}`:                                                      "x",
		`{{printf "%s=%q" .Machine.Name "x"}}`:                                                 `m1="x"`,
		`{{print .Machine.Name "-" .Params.fs}}`:                                               "m1-ext4",
		`{{if eq .Params.fs "xfs" "ext4"}}y{{end}}{{if ne .Params.fs "ext4"}}n{{end}}`:         "y",
		`{{if eq (len .Machine.MACs) 2}}{{index .Machine.MACs 1}}{{end}}`:                      "bb",
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
		if got := actions[0].With["ca"]; got != want || actions[0].With["args"].([]any)[0] != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
		if tpl.Spec.Actions[0].With["ca"] != text {
			t.Errorf("%q: the template itself was changed", text)
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"{{.Machine.Nmae}}": "uses .Machine.Nmae, which does not exist; did you mean Name?",
		"{{.Machine.Disk}}": "which does not exist; the known ones are " +
			"Arch, Labels, MACs, Name, Product,",
		"{{.Params.nope}}":                                                           ".Params.nope, which is not a parameter",
		"{{.Machine.Name.Length}}":                                                   ".Machine.Name is a text",
		"{{.Secrets.bmc.password}}":                                                  "uses .Secrets, which does not exist",
		"{{if .Nope}}x{{end}}":                                                       "uses .Nope",
		"{{range 1000000000}}{{end}}":                                                "ranges over something that is not a field",
		`{{range (len "xxxxxxxx")}}{{end}}`:                                          "ranges over something",
		"{{range len .Machine.MACs}}{{end}}":                                         "ranges over something",
		"{{$n := 9000000000000000000}}{{range $n}}{{end}}":                           "ranges over something",
		"{{$n := .Machine.MACs}}{{$n = 9000000000000000000}}{{range $n}}{{end}}":     "ranges over something",
		"{{$n := 9}}{{$m := $n}}{{range $m}}{{end}}":                                 "ranges over something",
		"{{$n := len .Machine.MACs}}{{range $n}}{{end}}":                             "ranges over something",
		"{{range $i, $m := .Machine.MACs}}{{range $i}}{{end}}{{end}}":                "ranges over something",
		"{{with 9000000000000000000}}{{range .}}{{end}}{{end}}":                      "ranges over something",
		"{{with $n := 9000000000000000000}}{{range $n}}{{end}}{{end}}":               "ranges over something",
		"{{if $n := 9000000000000000000}}{{range $n}}{{end}}{{end}}":                 "ranges over something",
		"{{range $n := .Machine.MACs}}{{else}}{{$n := 9}}{{range $n}}{{end}}{{end}}": "ranges over something",
		"{{each 1 .Machine.MACs}}":                                                   "calls each, which is unknown",
		"{{define \"x\"}}{{end}}":                                                    "defines a template",
		"{{template \"x\"}}":                                                         "calls a template",
		"{{":                                                                         "unclosed action",
		"{{nofunc 1}}":                                                               "nofunc",
		`{{html "x"}}`:                                                               "calls html, which is unknown; use one of and, default,",
		`{{(println "x").y}}`:                                                        "calls println, which is unknown",
		strings.Repeat("{{range .Machine.MACs}}", 3) + strings.Repeat("{{end}}", 3):  "range in a range in a range",
		strings.Repeat("x", workflow.MaxSource) + "{{.Machine.Name}}":                "at most",
	} {
		err := workflow.Check(recipe(text))
		if !errors.Is(err, trivet.ErrInvalid) || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "spec.actions[0].with") {
			t.Errorf("%.40q: %v; want %q and the field", text, err, want)
		}
	}
}

// The arguments of actions are checked as well, with the path of the field.
func TestCheckRefusesUnknownArguments(t *testing.T) {
	tpl := recipe("plain")
	tpl.Spec.Actions = append(tpl.Spec.Actions, trivet.Action{Name: "b", Use: "image",
		With: map[string]any{"imaeg": "x"}})
	err := workflow.Check(tpl)
	if want := "spec.actions[1].with.imaeg is not known; did you mean image?"; err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("%v; want %q", err, want)
	}
	rendered := []trivet.Action{{Name: "a", Use: "image", With: map[string]any{"image": "a b"}}}
	if err := workflow.CheckRendered(rendered); err == nil ||
		!strings.Contains(err.Error(), "spec.actions[0].with.image") {
		t.Error(err)
	}
}

func TestRenderRefuses(t *testing.T) {
	if _, err := workflow.Render(recipe("x"), workflow.Data{}); err == nil ||
		!strings.Contains(err.Error(), "spec.parameters.image is missing") {
		t.Errorf("a missing parameter: %v", err)
	}
	more := workflow.Data{Params: map[string]string{"image": "x", "typo": "y"}}
	if _, err := workflow.Render(recipe("x"), more); err == nil ||
		!strings.Contains(err.Error(), "spec.parameters.typo") {
		t.Errorf("an unknown parameter: %v", err)
	}
	if _, err := workflow.Render(recipe("{{.Machine.Labels.nope}}"), data); !errors.Is(err, trivet.ErrInvalid) {
		t.Errorf("a missing label: %v", err)
	}
	long := workflow.Data{Params: map[string]string{"image": strings.Repeat("x", workflow.MaxText)}}
	if _, err := workflow.Render(recipe("{{.Params.image}}{{.Params.image}}"), long); err == nil ||
		!strings.Contains(err.Error(), "grows beyond") {
		t.Errorf("a text that grows without bound: %v", err)
	}
}

// A text that would take terabytes, or years, is refused before it has used much.
func TestRenderIsBounded(t *testing.T) {
	grow := strings.Repeat("{{$x = print $x $x}}", 60)
	loop := strings.Repeat(`{{$y = eq $x "y"}}`, 3000)
	many := recipe("{{.Params.image}}")
	for range 100 {
		many.Spec.Actions[0].With["args"] = append(many.Spec.Actions[0].With["args"].([]any), "{{.Params.image}}")
	}
	wide := data
	wide.Params = map[string]string{"image": strings.Repeat("x", workflow.MaxText)}
	wide.Machine.MACs = slices.Repeat([]string{"aa"}, 64)
	for name, tpl := range map[string]*trivet.Template{
		"a text that doubles": recipe(`{{$x := "aaaa"}}` + grow),
		"in loops": recipe(`{{$x := .Params.image}}{{$y := false}}{{range .Machine.MACs}}` +
			`{{range $.Machine.MACs}}` + loop + `{{end}}{{end}}`),
		"a loop of nodes without functions": recipe(`{{range .Machine.MACs}}{{range $.Machine.MACs}}` +
			strings.Repeat("{{if .}}{{end}}", 2000) + `{{end}}{{end}}`),
		"many texts": many,
		"joined by long texts": recipe(`{{$x := .Params.image}}{{$y := ""}}` +
			`{{range .Machine.MACs}}{{$y = join $x $.Machine.MACs}}{{end}}`),
	} {
		if err := workflow.Check(tpl); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := workflow.Render(tpl, wide); !errors.Is(err, trivet.ErrInvalid) ||
			!strings.Contains(err.Error(), "bytes of work") {
			t.Errorf("%s: %.200v; want the limit of work", name, err)
		}
	}
	if _, err := workflow.Render(recipe(`{{printf "%999999s" "x"}}`), data); err == nil ||
		!strings.Contains(err.Error(), "write %s, %q or %%") {
		t.Errorf("a wide number: %v", err)
	}
}

// A text that was stored before its check knew better ends, too: it is refused when it is rendered.
func TestNumbersAreNotRangedOver(t *testing.T) {
	for _, text := range []string{"{{range .Params.image}}{{end}}", "{{with .Machine}}{{range .Name}}{{end}}{{end}}",
		"{{range .Machine}}{{end}}", "{{range $.Machine.Labels.rack}}{{end}}"} {
		if _, err := workflow.Render(recipe(text), data); !errors.Is(err, trivet.ErrInvalid) ||
			!strings.Contains(err.Error(), "cannot range over a") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// fuzzTime bounds one execution of the fuzz target: a text that renders for longer stops a worker of every head.
const fuzzTime = 5 * time.Second

func FuzzCheckedTextsRender(f *testing.F) {
	for _, seed := range []string{"{{.Machine.Name}}", "{{range .Machine.MACs}}{{.}}{{end}}",
		"{{with .Params}}{{.image}}{{end}}", "{{", "{{$n := 9000000000000000000}}{{range $n}}{{end}}",
		"{{range $i, $m := .Machine.MACs}}{{range $k, $v := $.Machine.Labels}}{{$i}}{{$k}}{{continue}}{{end}}{{end}}",
		`{{$x := printf "%s%q%%" .Params.fs "y"}}{{if eq $x "y" .Params.image}}{{(index .Machine.MACs 0)}}{{end}}`} {
		f.Add(seed)
	}
	wide := data
	wide.Machine.MACs = slices.Repeat([]string{"52:54:00:00:00:01"}, 64)
	f.Fuzz(func(_ *testing.T, text string) {
		late := time.AfterFunc(fuzzTime, func() { panic(fmt.Sprintf("still renders: %q", text)) })
		defer late.Stop()
		if tpl := recipe(text); workflow.Check(tpl) == nil {
			_, _ = workflow.Render(tpl, wide) // ends, without a panic
		}
	})
}
