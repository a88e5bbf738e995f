package workflow_test

import (
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/workflow"
)

// A machine lacks what its record shows to differ from what the images of a run need, and nothing that is not known.
func TestLacks(t *testing.T) {
	const gb = int64(1e9)
	disks := []trivet.Disk{{Name: "/dev/sda", Bytes: 4 * gb, Serial: "small"}, {Name: "/dev/sdb", Bytes: 100 * gb, Serial: "large"}}
	image := func(with map[string]any) trivet.Action {
		with["image"] = "os"
		return trivet.Action{Name: "image", Use: "image", With: with}
	}
	for name, c := range map[string]struct {
		image   trivet.ImageSpec
		action  trivet.Action
		machine trivet.Machine
		want    string
	}{
		"fits": {trivet.ImageSpec{Arch: "amd64", RawBytes: 4 * gb}, image(map[string]any{}),
			trivet.Machine{Spec: trivet.MachineSpec{Arch: "amd64"}, Status: trivet.MachineStatus{Inventory: &trivet.Inventory{
				Disks: disks}}}, ""},
		"too small": {trivet.ImageSpec{RawBytes: 5 * gb}, image(map[string]any{}),
			trivet.Machine{Status: trivet.MachineStatus{Inventory: &trivet.Inventory{Disks: disks}}},
			"its disk is smaller than image os, 5GB"},
		"by the hints of the machine": {trivet.ImageSpec{RawBytes: 5 * gb}, image(map[string]any{}),
			trivet.Machine{Spec: trivet.MachineSpec{Disk: trivet.DiskHints{Serial: "large"}},
				Status: trivet.MachineStatus{Inventory: &trivet.Inventory{Disks: disks}}}, ""},
		"by the hints of the action": {trivet.ImageSpec{RawBytes: 5 * gb},
			image(map[string]any{"disk": map[string]any{"serial": "small"}}),
			trivet.Machine{Spec: trivet.MachineSpec{Disk: trivet.DiskHints{Serial: "large"}},
				Status: trivet.MachineStatus{Inventory: &trivet.Inventory{Disks: disks}}},
			"its disk is smaller than image os, 5GB"},
		"a partition": {trivet.ImageSpec{RawBytes: 5 * gb}, image(map[string]any{"partition": 1}),
			trivet.Machine{Status: trivet.MachineStatus{Inventory: &trivet.Inventory{Disks: disks}}}, ""},
		"another architecture": {trivet.ImageSpec{Arch: "arm64"}, image(map[string]any{}),
			trivet.Machine{Spec: trivet.MachineSpec{Arch: "amd64"}}, "its architecture is not arm64, that of image os"},
		"by its inventory": {trivet.ImageSpec{Arch: "arm64"}, image(map[string]any{}),
			trivet.Machine{Spec: trivet.MachineSpec{Arch: "arm64"},
				Status: trivet.MachineStatus{Inventory: &trivet.Inventory{Arch: "amd64"}}},
			"its architecture is not arm64, that of image os"},
		"not known": {trivet.ImageSpec{Arch: "arm64", RawBytes: 5 * gb}, image(map[string]any{}), trivet.Machine{}, ""},
	} {
		w := &trivet.Workflow{Spec: trivet.WorkflowSpec{Actions: []trivet.Action{c.action},
			Images: []trivet.ImageRef{{Name: "os", ImageSpec: c.image}}}}
		if got := workflow.Lacks(&c.machine, workflow.Needs(w)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
