package cli

import (
	"testing"
	"time"

	"github.com/trivet-project/trivet"
)

// What becomes of a machine is printed before, with its disks, and what differs from what is installed.
func TestRedeployText(t *testing.T) {
	disks := &trivet.Inventory{Disks: []trivet.Disk{{Name: "/dev/sda", Bytes: 480 << 30, Serial: "S3X"}}}
	plan := &trivet.RedeployPlan{Provision: "web1", Machine: "m1", Template: "t", Run: "web1-1", Installed: time.Unix(1, 0),
		Changes: []trivet.RunChange{{Field: "images.debian", Was: "sha256:1", Now: "sha256:2"},
			{Field: "seed.userData", Was: "[9 bytes, hidden]", Now: "[9 bytes, hidden]"},
			{Field: "actions.a.with.script", Now: "a\x1b[31m"}}}
	got := redeployPlan{plan, &trivet.Machine{Spec: trivet.MachineSpec{BMC: &trivet.BMC{}},
		Status: trivet.MachineStatus{Inventory: disks}}}.text()
	if want := `provision/web1: machine m1 is INSTALLED AGAIN, from template t as it is now.
  What runs on it is stopped: its BMC power-cycles it. Nothing serves the provision until that is done.
  ALL DATA that the actions of its template overwrite is destroyed. Its disks:
    /dev/sda  480.0 GiB  S3X
  What differs from run web1-1, which has installed it:
    images.debian: sha256:1 -> sha256:2
    seed.userData: hidden -> another value
    actions.a.with.script: not set -> ` + printable("a\x1b[31m") + "\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	plan.Installed, plan.Changes = time.Time{}, nil
	got = redeployPlan{plan, &trivet.Machine{}}.text()
	if want := `provision/web1: machine m1 is INSTALLED AGAIN, from template t as it is now.
  It has no BMC: it goes on until you boot it from the network by hand.
  ALL DATA that the actions of its template overwrite is destroyed. Its disks:
    not known
  What run web1-1 has installed on it is not known any more.
`; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
