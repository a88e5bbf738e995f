package workflow

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/trivet-project/trivet"
)

// transitions is every command in every state. "-" is a refusal, "q:STATE" a quarantine with a former state.
const transitions = `
              accept      quarantine    claim    redeploy  grant         activate  abandon    release       begin-release  clear        unverify      adopt
discovered    available   q:discovered  -        -         -             -         -          discovered    -              -            -             active
available     available   q:available   claimed  -         -             -         -          available     releasing      -            unverified    active
claimed       -           -             -        -         provisioning  -         available  releasing     releasing      -            unverified    active
provisioning  -           -             -        -         provisioning  active    available  releasing     releasing      -            unverified    active
active        -           q:active      -        claimed   -             -         -          releasing     releasing      -            -             -
releasing     available   q:releasing   -        -         releasing     -         -          releasing     releasing      available    unverified    -
unverified    available   q:unverified  -        -         -             -         -          unverified    releasing      available    unverified    active
q:discovered  available   q:discovered  -        -         -             -         -          q:discovered  -              -            -             q:active
q:available   available   q:available   -        -         -             -         -          q:available   q:releasing    -            q:unverified  q:active
q:active      active      q:active      -        -         -             -         -          q:releasing   q:releasing    -            -             -
q:releasing   releasing   q:releasing   -        -         q:releasing   -         -          q:releasing   q:releasing    q:available  q:unverified  -
q:unverified  unverified  q:unverified  -        -         -             -         -          q:unverified  q:releasing    q:available  q:unverified  q:active
`

func TestEveryCommandInEveryState(t *testing.T) {
	commands := []Command{Accept, Quarantine, Claim, Redeploy, Grant, Activate, Abandon, Release, BeginRelease, Clear,
		Unverify, Adopt}
	states := []trivet.MachineState{trivet.MachineDiscovered, trivet.MachineAvailable, trivet.MachineClaimed,
		trivet.MachineProvisioning, trivet.MachineActive, trivet.MachineReleasing, trivet.MachineUnverified}
	var rows []trivet.MachineStatus
	for _, s := range states {
		rows = append(rows, trivet.MachineStatus{State: s})
	}
	for _, s := range states {
		if s != trivet.MachineClaimed && s != trivet.MachineProvisioning { // Quarantine refuses these
			rows = append(rows, trivet.MachineStatus{State: trivet.MachineQuarantined, Former: s})
		}
	}
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.TabIndent)
	for _, c := range commands {
		fmt.Fprintf(w, "\t%s", c)
	}
	for _, row := range rows {
		fmt.Fprintf(w, "\n%s", stateText(row))
		for _, c := range commands {
			fmt.Fprintf(w, "\t%s", changed(t, row, c))
		}
	}
	w.Flush()
	if got, want := words(out.String()), words(transitions); got != want {
		t.Errorf("got\n%s\nwant%s", out.String(), transitions)
	}
}

// changed returns the state after a command, or "-". A refused command must change nothing.
func changed(t *testing.T, s trivet.MachineStatus, c Command) string {
	was := s
	err := Change(&s, c)
	if err == nil {
		return stateText(s)
	}
	if !reflect.DeepEqual(s, was) || !errors.Is(err, trivet.ErrConflict) {
		t.Errorf("%s of a machine that is %s: %+v, %v", c, stateText(was), s, err)
	}
	return "-"
}

func stateText(s trivet.MachineStatus) string {
	if s.State == trivet.MachineQuarantined {
		return "q:" + string(s.Former)
	}
	return string(s.State)
}

func words(s string) string { return strings.Join(strings.Fields(s), " ") }

// A machine whose run is given up runs nothing where that run was granted to an agent and did not boot the disk, or was
// not granted and found nothing there.
func TestVacate(t *testing.T) {
	booted := trivet.WorkflowStatus{Steps: []trivet.Step{{Name: trivet.StepFirstBoot, Attempt: 1}}}
	again := trivet.WorkflowSpec{Redeploys: "web-1"}
	for name, c := range map[string]struct {
		state trivet.MachineState
		run   *trivet.Workflow
		want  Command
	}{
		"claimed":                 {trivet.MachineClaimed, &trivet.Workflow{}, Abandon},
		"claimed again":           {trivet.MachineClaimed, &trivet.Workflow{Spec: again}, Release},
		"an agent works":          {trivet.MachineProvisioning, &trivet.Workflow{}, Abandon},
		"an agent works again":    {trivet.MachineProvisioning, &trivet.Workflow{Spec: again}, Abandon},
		"it has booted its disk":  {trivet.MachineProvisioning, &trivet.Workflow{Status: booted}, Release},
		"the run is not known":    {trivet.MachineProvisioning, nil, Release},
		"claimed for an unknown":  {trivet.MachineClaimed, nil, Release},
		"in service":              {trivet.MachineActive, &trivet.Workflow{Status: booted}, Release},
		"in service, run unknown": {trivet.MachineActive, nil, Release},
	} {
		if got := Vacate(&trivet.MachineStatus{State: c.state}, c.run); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
