package cli

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
)

// What is destroyed is printed before, with the disks by which a person recognises it.
func TestReleaseText(t *testing.T) {
	m := &trivet.Machine{Meta: trivet.Meta{Name: "m1"}, Status: trivet.MachineStatus{State: trivet.MachineActive,
		Provision: "web1", Inventory: &trivet.Inventory{Disks: []trivet.Disk{
			{Name: "/dev/sda", Bytes: 480 << 30, Model: "SAMSUNG\x1b[31m", Serial: "S3X"},
			{Name: "/dev/sdb", Bytes: 16 << 30, Removable: true}}}}}
	for mode, want := range map[trivet.ReleaseMode]string{
		trivet.ReleaseWipe: `machine/m1 is active and serves provision web1, which is deleted. What runs on it is stopped.
  ALL DATA on these disks is destroyed, and on others that it has by then:
    /dev/sda  480.0 GiB  ` + printable("SAMSUNG\x1b[31m") + `  S3X
`,
		trivet.ReleaseNoWipe: `machine/m1 is active and serves provision web1, which is deleted. What runs on it is stopped.
  Its disks are not wiped; the next provision may overwrite them.
`,
		trivet.ReleaseKeepData: `machine/m1 is active and serves provision web1, which is deleted. What runs on it is stopped.
  Its disks are kept; only a provision that names it may use it.
`,
	} {
		if got := releaseText(m, mode); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", mode, got, want)
		}
	}
	m.Status = trivet.MachineStatus{State: trivet.MachineAvailable, HoldsData: "provision web1"}
	got := releaseText(m, trivet.ReleaseWipe)
	if !strings.Contains(got, "hold the data of provision web1") || !strings.Contains(got, "inventory is not known") {
		t.Errorf("got\n%s", got)
	}
}

// Only "yes" is a confirmation.
func TestAskYes(t *testing.T) {
	for typed, want := range map[string]error{"yes\n": nil, " YES \n": nil, "y\n": trivet.ErrInvalid,
		"\n": trivet.ErrInvalid, "": trivet.ErrInvalid, "no\nyes\n": trivet.ErrInvalid} {
		var out strings.Builder
		if err := askYes(t.Context(), "release", strings.NewReader(typed), &out); !errors.Is(err, want) || out.Len() == 0 {
			t.Errorf("%q: %v, want %v", typed, err, want)
		}
	}
}

// Ctrl-C ends the question, without an answer.
func TestAskYesInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	never, _ := io.Pipe()
	time.AfterFunc(50*time.Millisecond, interrupt)
	if err := askYes(ctx, "release", never, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
