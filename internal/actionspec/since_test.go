package actionspec

import (
	"testing"

	"github.com/trivet-project/trivet"
)

func TestSince(t *testing.T) {
	for _, c := range []struct {
		a    trivet.Action
		want trivet.Release
	}{
		{trivet.Action{Use: "wipe"}, ""}, {trivet.Action{Use: "wipe", With: map[string]any{"mode": "zero"}}, ""},
		{trivet.Action{Use: "wipe", With: map[string]any{"mode": "erase"}}, "0.3.1"},
		{trivet.Action{Use: "verify"}, "0.3.1"}, {trivet.Action{Use: "test-disk"}, "0.3.1"},
		{trivet.Action{Use: "test-memory"}, "0.3.1"}, {trivet.Action{Use: "raid"}, "0.3.1"},
		{trivet.Action{Use: "lvm"}, "0.3.1"}, {trivet.Action{Use: "head"}, "0.3.1"}, {trivet.Action{Use: "reboot"}, ""},
	} {
		if got := Since(c.a); got != c.want {
			t.Errorf("%+v: %q, want %q", c.a, got, c.want)
		}
	}
}
