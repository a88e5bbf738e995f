package lab

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// The template of docs/examples tests a machine: each step says what it has measured, and nothing on the disk changes.
func TestExampleOfAHardwareTest(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	text, err := os.ReadFile("../../docs/examples/hardware-test.yaml")
	s.must(err)
	text, err = yaml.YAMLToJSON(text)
	s.must(err)
	template := &trivet.Template{}
	s.must(json.Unmarshal(text, template))
	template.Project = "default"
	_, err = client.Of[trivet.Template](s.client).Create(t.Context(), template)
	s.must(err)
	m := s.machine("m", template.Name)
	defer s.power(m)()
	w := s.until("m-1", func(w *trivet.Workflow) bool { return w.Status.State.Ended() })
	if w.Status.State != trivet.WorkflowSucceeded {
		t.Fatalf("%s: %+v", w.Status.State, w.Status.Failure)
	}
	for step, want := range map[string]string{"memory": "1 MiB, 12 patterns, no EDAC",
		"disks": " MB/s, 50 % within ", "network": " MiB/s; 0 ports, 0 with a link"} {
		if got := w.Status.Step(step); got == nil || got.State != trivet.StepDone || !strings.Contains(got.Note, want) {
			t.Errorf("%s: %+v, want the note %q", step, got, want)
		}
	}
}
