package action

import (
	"maps"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/actionspec"
)

// twoDisks is a simulated machine with a small and a large disk.
func twoDisks(t *testing.T) *bench {
	return newBench(t, Files{map[string]string{"/dev/vda": sparse(t, 128<<20), "/dev/vdb": sparse(t, 64<<20)}}, "")
}

// wantOn fails unless the last action wrote to a disk and logged it.
func (b *bench) wantOn(name, reason string) {
	b.t.Helper()
	path := b.env.Host.(Files).Paths[name]
	if !strings.Contains(b.log.String(), "disk "+path+": "+reason) {
		b.t.Errorf("log %q; want disk %s, %s", b.log.String(), path, reason)
	}
}

func TestAMachineWithoutHintsInstallsOnItsSmallestDisk(t *testing.T) {
	b := twoDisks(t)
	b.do("wipe", nil)
	b.wantOn("/dev/vdb", "the smallest fixed disk, as spec.disk of the machine is not set")
	if want := "on " + b.env.Host.(Files).Paths["/dev/vdb"]; b.note != want {
		t.Errorf("note %q, want %q", b.note, want)
	}
}

func TestTheMachinesHintsSelectTheDiskOfActionsWithoutOne(t *testing.T) {
	b := twoDisks(t)
	b.run.Spec.Disk = trivet.DiskHints{MinSize: 100 << 20}
	b.do("wipe", nil)
	b.wantOn("/dev/vda", "selected by {minSize: 100MiB}")
	b.do("wipe", map[string]any{"disk": map[string]any{"maxSize": "100MiB"}})
	b.wantOn("/dev/vdb", "selected by {maxSize: 100MiB}")
	b.do("wipe", map[string]any{"disk": "/dev/vdb"})
	b.wantOn("/dev/vdb", "selected by {path: /dev/vdb}")
}

// A disk that appears or vanishes in the middle of a run does not move the run to another disk.
func TestHintsAreResolvedOncePerRun(t *testing.T) {
	b := twoDisks(t)
	b.do("wipe", nil)
	b.wantOn("/dev/vdb", "the smallest")
	smaller := maps.Clone(b.env.Host.(Files).Paths)
	smaller["/dev/vdc"] = sparse(t, 32<<20)
	b.env.Host = Files{smaller}
	at := &Attempt{Run: b.run, Log: &b.log, Note: func(string) {}}
	for _, uid := range []string{b.run.UID, "next-uid"} {
		at.Run = &trivet.Run{UID: uid}
		path, err := b.env.disk(at, actionspec.Disk{})
		must(t, err)
		want := map[bool]string{true: "/dev/vdb", false: "/dev/vdc"}[uid == b.run.UID]
		if path != smaller[want] {
			t.Errorf("run %s is on %s, want %s", uid, path, want)
		}
	}
}

func TestHintsThatDoNotSelectOneDiskFailAndListTheDisks(t *testing.T) {
	b := twoDisks(t)
	b.run.Spec.Disk = trivet.DiskHints{MaxSize: 1 << 40}
	b.fail("wipe", nil, trivet.FaultConfiguration, true,
		"several disks match the hints {maxSize: 1TiB}: /dev/vda (134MB)")
	b.run.Spec.Disk = trivet.DiskHints{MinSize: 1 << 40}
	b.fail("wipe", nil, trivet.FaultConfiguration, true,
		"no disk matches the hints {minSize: 1TiB}; the machine has /dev/vda (134MB)")
	b.env.Host = Files{}
	b.run.Spec.Disk = trivet.DiskHints{}
	b.fail("wipe", nil, trivet.FaultMachine, true, "the machine has no disk")
}
