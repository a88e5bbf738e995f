package cli

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
)

// hostile is text of a machine that clears the screen, sets the title, moves the cursor by one byte (CSI of C1),
// reverses what follows, rings, and is not UTF-8.
const hostile = "a\x1b[2J\x1b]0;x\x07b\u009b1Ac\u202ed\u2066e\u2028f\x7fg\r\nh\ti\xffj"

// mustBeSafe expects an output without anything that controls a terminal.
func mustBeSafe(t *testing.T, what, output string) {
	t.Helper()
	for _, r := range output {
		if isControl(r) && r != '\n' && r != '\t' {
			t.Errorf("%s prints %q: %q", what, r, output)
			return
		}
	}
	if !strings.Contains(output, "a") || strings.Contains(output, "\xff") {
		t.Errorf("%s prints %q", what, output)
	}
}

// Whatever a command writes, to its output or as an error, cannot control the terminal.
func TestOutputIsEscaped(t *testing.T) {
	var out, errs bytes.Buffer
	root := Root(Env{Out: &out, Err: &errs})
	root.AddCommand(&cobra.Command{Use: "say", RunE: func(c *cobra.Command, _ []string) error {
		c.Println(hostile)
		return &trivet.Error{Op: hostile, Err: trivet.ErrNotFound, Hint: hostile}
	}})
	root.SetArgs([]string{"say"})
	if status := Execute(t.Context(), root); status != 1 {
		t.Errorf("status %d", status)
	}
	mustBeSafe(t, "a command", out.String())
	mustBeSafe(t, "an error", errs.String())
}

// Every format of records escapes the texts of machines, and YAML and JSON still mean the same.
func TestRecordsAreEscaped(t *testing.T) {
	valid := strings.ToValidUTF8(hostile, "")
	info, err := trivet.LookupKind("machines")
	if err != nil {
		t.Fatal(err)
	}
	m := &trivet.Machine{Meta: trivet.Meta{Kind: "Machine", Name: "m1", Labels: map[string]string{"a": valid}},
		Status: trivet.MachineStatus{Reason: valid}}
	raw, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	for _, form := range []string{"table", "json", "yaml", "name"} {
		var out bytes.Buffer
		a := newApp(Env{Out: &out, Err: &out})
		a.output = form
		if err := a.show(info, []trivet.Record{m}, []json.RawMessage{raw}, true); err != nil {
			t.Fatal(err)
		}
		mustBeSafe(t, form, out.String())
		if form != "yaml" && form != "json" {
			continue
		}
		docs, err := parseYAML(form, out.Bytes())
		if err != nil || len(docs) != 1 {
			t.Fatalf("%s: %v\n%s", form, err, out.String())
		}
		text, err := json.Marshal(docs[0].value)
		if err != nil {
			t.Fatal(err)
		}
		var again trivet.Machine
		if err := json.Unmarshal(text, &again); err != nil || !reflect.DeepEqual(again.Labels, m.Labels) ||
			again.Status.Reason != m.Status.Reason {
			t.Errorf("%s: read again: %v, %q", form, err, again.Status.Reason)
		}
	}
}

// Rows, lines and the screen keep a text of a machine in its place.
func TestViewsAreEscaped(t *testing.T) {
	p := provisionState{provision: &trivet.Provision{Meta: trivet.Meta{Project: "default", Name: "web1"}},
		workflow: &trivet.Workflow{Meta: trivet.Meta{Project: "default", Name: "web1-1"}}}
	p.provision.Status.State, p.provision.Status.Reason = trivet.ProvisionPending, hostile
	p.workflow.Spec.Machine = hostile
	p.workflow.Status.Steps = []trivet.Step{{Name: "boot", State: trivet.StepFailed, Attempt: 1, Cause: hostile,
		Note: hostile}}
	var out bytes.Buffer
	(&lines{out: escaper{&out}, shown: map[string]string{}}).show(p)
	mustBeSafe(t, "lines", out.String())
	out.Reset()
	newScreen(&out, 400).show(p)
	drawn := out.String()
	for _, own := range marks {
		drawn = strings.ReplaceAll(drawn, own, "")
	}
	mustBeSafe(t, "the screen", drawn)
	if n := strings.Count(drawn, "\n"); n != 2 {
		t.Errorf("the screen has %d lines, want 2: %q", n, drawn)
	}
}

func TestEscape(t *testing.T) {
	for text, want := range map[string]string{
		"plain äöü 漢字 🙂": "plain äöü 漢字 🙂", "a\x1bb": `a\u001bb`, "\u009b": `\u009b`, "\xff": `\xff`, "\ufffd": "\ufffd",
		"a\r\n\tb": `a\r\n\tb`, "\u202ex": `\u202ex`,
	} {
		if got := printable(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
