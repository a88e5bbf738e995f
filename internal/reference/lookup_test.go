package reference_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/reference"
)

func TestLookup(t *testing.T) {
	for path, want := range map[string]string{
		"machine":                      "machine object",
		"M.Spec.BMC":                   "machine.spec.bmc object",
		"machines.spec.nics[].mac":     "machine.spec.nics.mac string",
		"site.spec.limits.*.timeout":   "site.spec.limits.timeout duration",
		"site.spec.limits.timeout":     "site.spec.limits.timeout duration",
		"template.spec.actions[0].use": "template.spec.actions.use string",
		"event.spec.subject":           "event.spec.subject string",
		"workflow.project":             "workflow.project string",
		"action":                       "action object",
		"actions.file.mode":            "action.file.mode text",
		"action.wipe.disk.serial":      "action.wipe.disk.serial text",
	} {
		at, f, err := reference.Lookup(path)
		if got := at + " " + f.Type; err != nil || got != want || f.Description == "" {
			t.Errorf("%s: %q (%s), %v; want %q", path, got, f.Description, err, want)
		}
	}
}

func TestLookupSuggests(t *testing.T) {
	for path, want := range map[string]string{
		"machine.spec.bcm":    `machine.spec has no field "bcm"; did you mean bmc?`,
		"machine.rack":        `machine has no field "rack"; did you mean machine.spec.rack?`,
		"machine.project":     `machine has no field "project"; the known ones are annotations, created, `,
		"machine.spec.rack.x": `machine.spec.rack has no field "x"; it is a string`,
		"machine.spec.":       `machine.spec has no field ""; the known ones are `,
		"action.wipe.fs":      `action.wipe has no field "fs"; did you mean action.format.fs?`,
		"":                    `unknown kind ""; the kinds are machines, `,
		"rack":                `, and action`,
	} {
		_, _, err := reference.Lookup(path)
		if !errors.Is(err, trivet.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", path, err, want)
		}
	}
}

// Every kind and action can be looked up by the name in the list of topics.
func TestTopics(t *testing.T) {
	topics := reference.Topics()
	if len(topics) != len(trivet.Kinds)+1 {
		t.Errorf("%d topics for %d kinds", len(topics), len(trivet.Kinds))
	}
	for _, topic := range topics {
		at, f, err := reference.Lookup(topic.Name)
		if err != nil || at != topic.Name || len(f.Fields) == 0 {
			t.Errorf("%s: %s with %d fields, %v", topic.Name, at, len(f.Fields), err)
		}
	}
}
