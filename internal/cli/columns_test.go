package cli

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trivet-project/trivet"
)

// Every kind has a table, even of an empty record; a kind without columns of its own has the default ones.
func TestEveryKindHasColumns(t *testing.T) {
	for _, info := range trivet.Kinds {
		for name, c := range map[string]columns{"own": columnsFor(info), "default": defaultColumns(info)} {
			if got := len(c.row(info.New())); got != len(c.titles) {
				t.Errorf("%s, %s columns: %d cells under %d titles", info.Kind, name, got, len(c.titles))
			}
		}
	}
}

func TestDefaultColumns(t *testing.T) {
	info, err := trivet.LookupKind("machines")
	if err != nil {
		t.Fatal(err)
	}
	m := &trivet.Machine{
		Meta:   trivet.Meta{Labels: map[string]string{"b": "2", "a": "1"}, Created: time.Unix(0, 0)},
		Status: trivet.MachineStatus{State: trivet.MachineAvailable, Reason: "new"},
	}
	c := defaultColumns(info)
	if diff := cmp.Diff([]string{"STATE", "REASON", "LABELS", "CREATED"}, c.titles); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"available", "new", "a=1,b=2", "1970-01-01T00:00:00Z"}, c.row(m)); diff != "" {
		t.Error(diff)
	}
}
