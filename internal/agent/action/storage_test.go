package action

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/agent/container/sandbox"
)

// mirror is a machine with two disks A and B, whose mdadm, LVM and sysfs are simulated: its array is the device M. What
// the programs write to the disks is real.
type mirror struct {
	*bench
	nodes map[string]string // A, B and M to loop devices
	sys   string
	calls []string
	group string
	lvs   []string
	// before, if set, may end a program before it does anything.
	before func(ctx context.Context, call string) error
}

// testArray is the array's name: its link is in the /dev of this host.
const testArray = "trivet-test"

func newMirror(t *testing.T) *mirror {
	t.Helper()
	m := &mirror{bench: newBench(t, &Machine{Dir: t.TempDir()}, ""), nodes: map[string]string{}, sys: t.TempDir()}
	for _, name := range []string{"A", "B", "M"} {
		out, err := exec.Command("losetup", "--find", "--show", sparse(t, 64<<20)).CombinedOutput()
		if err != nil {
			t.Fatalf("losetup (requires root, and apt-get install mount): %v: %s", err, out)
		}
		node := strings.TrimSpace(string(out))
		t.Cleanup(func() { must(t, exec.Command("losetup", "--detach", node).Run()) })
		m.nodes[name] = node
		m.device(node, map[string]string{"A": "vda", "B": "vdb", "M": "md127"}[name])
	}
	t.Cleanup(func() { m.remove("md127") })
	m.env.Sys, m.env.start = os.DirFS(m.sys), m.start
	return m
}

// device gives a node a name in sysfs.
func (m *mirror) device(node, name string) {
	var st unix.Stat_t
	must(m.t, unix.Stat(node, &st))
	dir := filepath.Join(m.sys, "sys/dev/block")
	must(m.t, os.MkdirAll(dir, 0o755))
	must(m.t, os.Symlink("../../devices/"+name, fmt.Sprintf("%s/%d:%d", dir, unix.Major(st.Rdev), unix.Minor(st.Rdev))))
}

// addDevice adds a device to sysfs, above others.
func (m *mirror) addDevice(name, file, content string, below ...string) {
	path := filepath.Join(m.sys, classBlock, name, file)
	must(m.t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(m.t, os.WriteFile(path, []byte(content+"\n"), 0o644))
	for _, b := range below {
		must(m.t, os.MkdirAll(filepath.Join(m.sys, classBlock, b, "holders", name), 0o755))
		must(m.t, os.MkdirAll(filepath.Join(m.sys, classBlock, name, "slaves", b), 0o755))
	}
}

func (m *mirror) remove(name string) {
	paths, err := filepath.Glob(filepath.Join(m.sys, classBlock, "*/holders", name))
	must(m.t, err)
	for _, path := range append(paths, filepath.Join(m.sys, classBlock, name)) {
		must(m.t, os.RemoveAll(path))
	}
	if name == "md127" {
		_ = os.Remove("/dev/md/" + testArray)
		_ = os.Remove("/dev/md")
	}
}

// boot is another agent after a loss of power: nothing runs but what it starts.
func (m *mirror) boot() {
	m.remove("dm-0")
	m.remove("md127")
	m.env = &Env{Host: m.env.Host, Dir: m.env.Dir, Sys: m.env.Sys, start: m.start}
	m.calls = nil
}

// start simulates a program.
func (m *mirror) start(ctx context.Context, s sandbox.Spec) error {
	call := strings.Join(s.Args, " ")
	for name, node := range m.nodes {
		call = strings.ReplaceAll(call, node, name)
	}
	m.calls = append(m.calls, call)
	if m.before != nil {
		if err := m.before(ctx, call); err != nil {
			return err
		}
	}
	last := s.Args[len(s.Args)-1]
	switch verb := s.Args[0] + " " + s.Args[1]; verb {
	case "mdadm --create", "mdadm --assemble":
		members := s.Args[len(s.Args)-2:]
		if verb == "mdadm --create" {
			m.superblocks(value(s.Args, "--uuid="), members)
		}
		m.addDevice("md127", "md/array_state", "clean", "vda", "vdb")
		must(m.t, os.MkdirAll("/dev/md", 0o755))
		must(m.t, os.Symlink(m.nodes["M"], "/dev/md/"+testArray))
	case "mdadm --stop", "dmsetup remove":
		m.remove(map[string]string{"mdadm --stop": "md127", "dmsetup remove": "dm-0"}[verb])
	case "lvm pvcreate":
		label := make([]byte, 512)
		copy(label, "LABELONE")
		copy(label[24:], "LVM2 001")
		binary.LittleEndian.PutUint32(label[20:], 32)
		copy(label[32:], strings.ReplaceAll(s.Args[slices.Index(s.Args, "--uuid")+1], "-", ""))
		m.write(last, 512, label)
	case "lvm vgcreate":
		m.group = s.Args[5]
	case "lvm lvcreate":
		m.lvs = append(m.lvs, s.Args[slices.Index(s.Args, "--name")+1])
	case "lvm vgs":
		fmt.Fprintln(s.Stdout, "  "+m.group)
	case "lvm lvs":
		fmt.Fprintln(s.Stdout, "  "+strings.Join(m.lvs, "\n  "))
	}
	return nil
}

func value(args []string, key string) string {
	for _, a := range args {
		if v, ok := strings.CutPrefix(a, key); ok {
			return v
		}
	}
	return ""
}

func (m *mirror) superblocks(id string, nodes []string) {
	b := make([]byte, 4096)
	binary.LittleEndian.PutUint32(b, 0xa92b4efc)
	binary.LittleEndian.PutUint32(b[4:], 1)
	raw, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
	must(m.t, err)
	copy(b[16:], raw)
	for _, node := range nodes {
		m.write(node, 4096, b)
	}
}

func (m *mirror) write(node string, off int64, b []byte) {
	f, err := os.OpenFile(node, os.O_RDWR, 0)
	must(m.t, err)
	defer f.Close()
	_, err = f.WriteAt(b, off)
	must(m.t, err)
}

func (m *mirror) read(node string) string {
	f, err := os.Open(node)
	must(m.t, err)
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 48<<20))
	must(m.t, err)
	return string(b)
}

// did is an attempt that must succeed, by these programs.
func (m *mirror) did(use string, with map[string]any, want ...string) {
	m.t.Helper()
	m.calls = nil
	if err := m.try(m.t.Context(), use, with); err != nil {
		m.t.Fatalf("%s: %v\n%s", use, err, m.log.String())
	}
	if !slices.Equal(m.calls, want) {
		m.t.Errorf("%s called\n%s\nwant\n%s", use, strings.Join(m.calls, "\n"), strings.Join(want, "\n"))
	}
}

func (m *mirror) raid() map[string]any {
	return map[string]any{"name": testArray, "devices": []any{m.nodes["A"], map[string]any{"disk": m.nodes["B"]}}}
}

func (m *mirror) lvm(size string) map[string]any {
	return map[string]any{"group": "trivet-vg", "devices": []any{m.nodes["M"]}, "volumes": []any{
		map[string]any{"name": "data", "size": "rest"}, map[string]any{"name": "root", "size": size},
	}}
}

const (
	assemble = "mdadm --assemble /dev/md/" + testArray + " --uuid="
	create   = "mdadm --create /dev/md/" + testArray + " --run --level=1 --raid-devices=2 --metadata=1.2 " +
		"--bitmap=internal --homehost=any --uuid="
)

// idOf returns the ID of the array or physical volume that the last action has created on a device.
func (m *mirror) idOf(node string) string {
	m.t.Helper()
	got, err := examine(m.nodes[node], 0)
	must(m.t, err)
	id := got.holds.ID
	if len(id) != 32 {
		m.t.Fatalf("%s holds %+v\n%s", node, got.holds, m.log.String())
	}
	if got.holds.Kind == "LVM" {
		return dashed(id)
	}
	return id[:8] + "-" + id[8:12] + "-" + id[12:16] + "-" + id[16:20] + "-" + id[20:]
}

func TestAnArrayIsCreatedOnce(t *testing.T) {
	m := newMirror(t)
	m.write(m.nodes["A"], 30<<20, []byte("LABELONE of a system that was there before"))
	must(t, m.try(t.Context(), "raid", m.raid()))
	id := m.idOf("A")
	if want := []string{"modprobe raid1", create + id + " A B"}; !slices.Equal(m.calls, want) {
		t.Errorf("called %q, want %q", m.calls, want)
	}
	if strings.Contains(m.read(m.nodes["A"]), "LABELONE") {
		t.Error("what was there before is in the new array")
	}
	for _, want := range []string{"+ modprobe raid1\n", "+ mdadm --create /dev/md/trivet-test"} {
		if !strings.Contains(m.log.String(), want) {
			t.Errorf("no %q in the log:\n%s", want, m.log.String())
		}
	}
	if want := "/dev/md/trivet-test of " + m.nodes["A"] + ", " + m.nodes["B"] + ", UUID " + id; m.note != want {
		t.Errorf("note %q, want %q", m.note, want)
	}
	m.did("raid", m.raid(), "modprobe raid1") // the agent was started again
	m.boot()
	m.did("raid", m.raid(), "modprobe raid1", assemble+id+" A B")
	if want := "/dev/md/trivet-test exists already\n"; !strings.Contains(m.log.String(), want) {
		t.Errorf("no %q in the log:\n%s", want, m.log.String())
	}
}

// An attempt that was ended in the middle does not stop the next one.
func TestAnInterruptedArrayIsCreatedAgain(t *testing.T) {
	m := newMirror(t)
	must(t, m.try(t.Context(), "raid", m.raid()))
	id := m.idOf("A")
	m.boot()
	m.write(m.nodes["B"], 4096, make([]byte, 4096))
	m.did("raid", m.raid(), "modprobe raid1", create+id+" A B")
	m.addDevice("md127", "md/array_state", "inactive") // not all members were added
	m.did("raid", m.raid(), "modprobe raid1", "mdadm --stop /dev/md127", assemble+id+" A B")
}

func TestDevicesThatHoldSomethingAreRefused(t *testing.T) {
	m := newMirror(t)
	with := m.raid()
	must(t, m.try(t.Context(), "raid", with))
	m.boot()
	m.run.UID = "another run"
	m.refused("raid", with, m.nodes["A"]+" holds a part of a RAID, which is not of this run; write an action wipe")
	m.refused("lvm", map[string]any{"group": "g", "devices": []any{m.nodes["B"]}, "volumes": []any{
		map[string]any{"name": "v", "size": "rest"}}}, m.nodes["B"]+" holds a part of a RAID")
	m.wiped("A")
	m.write(m.nodes["A"], 1024+56, []byte{0x53, 0xef})
	m.refused("raid", with, m.nodes["A"]+" holds a file system, ext4, which is not of this run")
	m.wiped("A")
	m.wiped("B")
	must(t, m.try(t.Context(), "raid", with))
	with["devices"] = []any{m.nodes["A"], map[string]any{"disk": map[string]any{"path": link(t, m.nodes["A"])}}}
	m.refused("raid", with, "devices[0], "+m.nodes["A"]+", and devices[1], /dev/trivet-test-link, are one device")
}

// wiped wipes a disk.
func (m *mirror) wiped(name string) {
	m.t.Helper()
	must(m.t, m.try(m.t.Context(), "wipe", map[string]any{"disk": m.nodes[name]}))
}

// link is another path of a device.
func link(t *testing.T, node string) string {
	path := "/dev/trivet-test-link"
	must(t, os.Symlink(node, path))
	t.Cleanup(func() { must(t, os.Remove(path)) })
	return path
}

// refused is an attempt that fails by the configuration, before a program is called that writes.
func (m *mirror) refused(use string, with map[string]any, text string) {
	m.t.Helper()
	m.calls = nil
	m.fail(use, with, trivet.FaultConfiguration, true, text)
	for _, call := range m.calls {
		m.t.Errorf("called %s", call)
	}
}

func TestVolumesAreCreatedOnce(t *testing.T) {
	m := newMirror(t)
	must(t, m.try(t.Context(), "lvm", m.lvm("20MiB")))
	id := m.idOf("M")
	vgs := "lvm vgs --devices M --noheadings --options vg_name"
	lvs := "lvm lvs --devices M --noheadings --options lv_name trivet-vg"
	lvcreate := "lvm lvcreate --devices M --yes --wipesignatures y --zero y --name "
	activate := "lvm vgchange --devices M --activate y trivet-vg"
	want := []string{"modprobe dm-mod",
		"lvm pvcreate --devices M --yes --norestorefile --uuid " + id + " M", vgs,
		"lvm vgcreate --devices M --yes trivet-vg M", lvs,
		lvcreate + "root --size 20971520b trivet-vg", lvcreate + "data --extents 100%FREE trivet-vg", activate}
	if !slices.Equal(m.calls, want) {
		t.Errorf("called %q, want %q", m.calls, want)
	}
	m.did("lvm", m.lvm("20MiB"), "modprobe dm-mod", vgs, lvs, activate)
	m.lvs = m.lvs[:1] // the attempt was ended before the second
	m.did("lvm", m.lvm("20MiB"), "modprobe dm-mod", vgs, lvs, lvcreate+"data --extents 100%FREE trivet-vg", activate)
	m.run.UID = "another run"
	m.refused("lvm", m.lvm("20MiB"), m.nodes["M"]+" holds a physical volume of LVM, which is not of this run")
	m.refused("lvm", m.lvm("1GiB"), "the volumes of trivet-vg need 1024 MiB, and its devices have 64 MiB")
}

// After another boot an action has the arrays and volumes of the actions before it, and is without those of later ones.
func TestActionsHaveWhatEarlierOnesHaveCreated(t *testing.T) {
	m := newMirror(t)
	must(t, m.try(t.Context(), "raid", m.raid())) // by the name a
	raid := assemble + m.idOf("A") + " A B"
	with := m.lvm("20MiB")
	with["devices"] = []any{"/dev/md/" + testArray}
	must(t, m.try(t.Context(), "lvm", with)) // also
	lvm := "lvm vgchange --devices /dev/md/" + testArray + " --activate y trivet-vg"
	actions := []trivet.Action{{Name: "a", Use: "raid", With: m.raid()}, {Name: "a", Use: "lvm", With: with}}
	try := func(name string, want ...string) {
		t.Helper()
		m.boot()
		m.run.Spec.Actions = append(slices.Clone(actions), trivet.Action{Name: name, Use: "noop"})
		at := &Attempt{Run: m.run, Action: trivet.Action{Name: name, Use: "noop"}, Log: &m.log,
			Progress: func(int64, int64, string) {}, Note: func(string) {}, Blobs: func() []string { return nil }}
		for range 2 { // the second time there is nothing to do
			must(t, m.env.Do(t.Context(), at))
		}
		if !slices.Equal(m.calls, want) {
			t.Errorf("before %s: called %q, want %q", name, m.calls, want)
		}
	}
	try("later", "modprobe raid1", raid, "modprobe dm-mod", lvm)
	try("a")
	m.wiped("A")
	m.boot()
	err := m.env.Do(t.Context(), &Attempt{Run: m.run, Action: trivet.Action{Name: "later", Use: "noop"}, Log: &m.log,
		Note: func(string) {}})
	want := m.nodes["A"] + " was a part of it, and holds nothing now"
	var f *Failure
	if !errors.As(err, &f) || f.Fault != trivet.FaultMachine || !strings.Contains(err.Error(), want) {
		t.Errorf("without a member: %v, want a fault of the machine with %q", err, want)
	}
	m.wiped("B")
	try("later") // nothing is left
}

func TestAWipeStopsWhatIsOnTheDisk(t *testing.T) {
	for _, mode := range []string{"quick", "erase"} {
		m := newMirror(t)
		must(t, m.try(t.Context(), "raid", m.raid()))
		m.addDevice("dm-0", "dm/name", "trivet--vg-root", "md127")
		must(t, os.MkdirAll("/dev/trivet-vg", 0o755))
		must(t, os.Symlink("../mapper/trivet--vg-root", "/dev/trivet-vg/root"))
		m.did("wipe", map[string]any{"disk": m.nodes["A"], "mode": mode},
			"dmsetup remove --noudevsync --noudevrules --retry trivet--vg-root", "mdadm --stop /dev/md127")
		m.did("wipe", map[string]any{"disk": m.nodes["B"], "mode": mode})
		if _, err := os.Lstat("/dev/trivet-vg"); err == nil {
			t.Error("the name of a volume that is gone stays")
		}
		for _, name := range []string{"A", "B"} {
			if strings.Trim(m.read(m.nodes[name]), "\x00") != "" {
				t.Errorf("%s: %s is not wiped", mode, name)
			}
		}
	}
}

func TestAnArrayThatCannotBeStoppedIsNamed(t *testing.T) {
	m := newMirror(t)
	must(t, m.try(t.Context(), "raid", m.raid()))
	m.before = func(context.Context, string) error { return &sandbox.ExitError{Code: 1} }
	m.fail("wipe", map[string]any{"disk": m.nodes["A"]}, trivet.FaultMachine, false,
		"stop what is on "+m.nodes["A"]+": mdadm: exit status 1")
}

// Disks of the lab are files: the programs would work on this host.
func TestFilesAreNoDevicesOfAnArray(t *testing.T) {
	b := onFile(t, 1<<20)
	b.env.start = func(_ context.Context, s sandbox.Spec) error {
		t.Errorf("called %q", s.Args)
		return nil
	}
	b.fail("raid", map[string]any{"name": "a", "devices": []any{"/dev/vda", map[string]any{"partition": 1}}},
		trivet.FaultConfiguration, true, "is no block device")
}

func TestAPlatformWithoutTheProgramsIsNamed(t *testing.T) {
	m := newMirror(t)
	m.before = func(_ context.Context, call string) error {
		if strings.HasPrefix(call, "mdadm") {
			return &sandbox.StartError{Step: findProgram, Err: os.ErrNotExist}
		}
		return nil
	}
	m.fail("raid", m.raid(), trivet.FaultConfiguration, true,
		"has no mdadm: it is of a release before 0.3.1; build another")
}

func TestARaidThatHangsIsKilled(t *testing.T) {
	m := newMirror(t)
	m.before = func(ctx context.Context, call string) error {
		if !strings.HasPrefix(call, "mdadm") {
			return nil
		}
		<-ctx.Done()
		return context.Cause(ctx)
	}
	m.killed("raid", m.raid())
}
