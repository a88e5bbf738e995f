package heads_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/bmc"
	"github.com/trivet-project/trivet/internal/bmc/bmctest"
	"github.com/trivet-project/trivet/internal/lab"
	"github.com/trivet-project/trivet/internal/testhead"
)

// powered is a machine with a simulated BMC.
type powered struct {
	name, mac string
	box       *bmctest.Box
}

// addPowered creates machines with BMCs, which are on or off.
func addPowered(t *testing.T, h *head, states ...bmc.State) (all []powered) {
	t.Helper()
	yaml := ""
	for i, state := range states {
		p := powered{fmt.Sprint("box", i), fmt.Sprintf("52:54:00:71:00:%02x", i), bmctest.NewBox()}
		if err := p.box.SetPower(state); err != nil {
			t.Fatal(err)
		}
		sim, err := bmctest.StartIPMI(p.box, bmctest.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { sim.Stop() })
		yaml += fmt.Sprintf("kind: Secret\nname: %[1]s\n"+
			"spec: {data: {user: %[2]q, password: %[3]q}, addresses: [127.0.0.0/8]}\n---\n"+
			"kind: Machine\nname: %[1]s\nlabels: {box: %[1]s}\nspec:\n  nics: [{mac: %[4]q}]\n"+
			"  bmc: {protocol: ipmi, address: %[5]q, secret: %[1]s}\n---\n",
			p.name, sim.Config.User, sim.Config.Password, p.mac, sim.Config.Address)
		all = append(all, p)
	}
	h.Apply(yaml + `kind: Template
name: install
spec:
  actions:
    - {name: wipe, use: wipe}
    - {name: seed, use: seed}
    - {name: reboot, use: reboot}
`)
	return all
}

// simulated is a lab machine that runs until the test ends.
type simulated struct {
	*lab.Machine
	up atomic.Int32
}

// powerOn runs a machine that boots from a head.
func (p *powered) powerOn(t *testing.T, h *head) *simulated {
	t.Helper()
	log := testhead.NewLog()
	m := &simulated{}
	m.Machine = &lab.Machine{Name: p.name, MAC: p.mac, Dir: t.TempDir(), DHCP: []string{h.Address + ":7067"},
		Up: func() { m.up.Add(1) }, Log: slog.New(slog.NewTextHandler(log, nil))}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
		if t.Failed() {
			t.Logf("log of %s:\n%s", p.name, log)
		}
	})
	return m
}

// disk returns what is on the machine's disks, and its journal.
func (m *simulated) disk(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", "cd "+m.Dir+" && find . -type f | sort | xargs sha256sum").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// platform makes machines boot: their installer is simulated.
func platform(t *testing.T, h *head) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kernel")
	if err := os.WriteFile(path, []byte("kernel"), 0o600); err != nil {
		t.Fatal(err)
	}
	cl := h.client(h)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	blob, errBlob := cl.PutBlob(t.Context(), f, client.PutOptions{})
	_, errPlatform := client.Of[trivet.Platform](cl).Create(t.Context(), &trivet.Platform{
		Meta: trivet.Meta{Name: "p"},
		Spec: trivet.PlatformSpec{Arch: "amd64", Version: "v", Kernel: blob, Initrd: blob}})
	_, errSite := client.Of[trivet.Site](cl).Modify(t.Context(), trivet.SiteName, func(s *trivet.Site) error {
		s.Spec.Platform = "p"
		return nil
	})
	if err := errors.Join(errBlob, errPlatform, errSite); err != nil {
		t.Fatal(err)
	}
}

// recovery is a cluster that is lost, and what is known of it.
type recovery struct {
	*testing.T
	h0, h1, h2 *head
	l          *ledger
	boxes      []powered
	keyFile    string
	backups    string
}

func newRecovery(t *testing.T, states ...bmc.State) *recovery {
	t.Helper()
	r := &recovery{T: t, keyFile: filepath.Join(t.TempDir(), "recovery.key"), backups: filepath.Join(t.TempDir(), "b")}
	r.h0, r.l = startWithLedger(t)
	r.h1, r.h2 = r.h0.join("head1"), r.h0.join("head2")
	r.l.cl = r.h0.client(r.h0, r.h1, r.h2)
	platform(t, r.h0)
	r.boxes = addPowered(t, r.h0, states...)
	if err := os.WriteFile(r.keyFile, []byte(r.h0.MustTrivet("backup", "key", "--yes")), 0o600); err != nil {
		t.Fatal(err)
	}
	return r
}

// awaitPowered waits until the machine of a run was powered on.
func (r *recovery) awaitPowered(run string) {
	r.Helper()
	r.h0.Await(run+" waits for DHCP", func() error {
		w, err := client.Of[trivet.Workflow](r.l.cl).Get(r.Context(), run)
		if err != nil || w.Status.Current() == nil || w.Status.Current().Name != trivet.StepDHCP {
			return fmt.Errorf("%+v, %w", w, err)
		}
		return nil
	})
}

func (r *recovery) killAll() {
	for _, h := range []*head{r.h0, r.h1, r.h2} {
		h.Kill()
	}
}

// recover runs trivet recover for a head that has not started, and measures it.
func (r *recovery) recover(to *head, args ...string) string {
	r.Helper()
	began := time.Now()
	out := r.run(append([]string{"recover", "--data-dir", to.Dir, "--advertise", to.Address, "--yes"}, args...)...)
	r.Logf("trivet recover took %s", time.Since(began).Round(time.Millisecond))
	return out
}

// run runs an operator command that needs no head.
func (r *recovery) run(args ...string) string {
	r.Helper()
	out, err := exec.Command(testhead.Program(r.T), args...).CombinedOutput()
	if err != nil {
		r.Fatalf("%s: %v: %s", args, err, out)
	}
	return string(out)
}

func (r *recovery) refused(args []string, texts ...string) {
	r.Helper()
	out, err := exec.Command(testhead.Program(r.T), args...).CombinedOutput()
	if err == nil {
		r.Errorf("%s succeeded: %s", args, out)
	}
	for _, text := range texts {
		if !strings.Contains(string(out), text) {
			r.Errorf("%s says %q, want %q", args, out, text)
		}
	}
}

func (r *recovery) machine(cl *client.Client, name string) trivet.MachineStatus {
	r.Helper()
	m, err := client.Of[trivet.Machine](cl).Get(r.Context(), name)
	if err != nil {
		r.Fatal(err)
	}
	return m.Status
}

// All heads are lost, and a backup is left of before a machine was installed: that one runs on untouched, nothing else
// is powered either, and the cluster continues on another address.
func TestRecoverFromBackup(t *testing.T) {
	t.Parallel()
	r := newRecovery(t, bmc.Off, bmc.Off, bmc.Off) // installed later; off; in a run
	h0 := r.h0
	installed, off, running := r.boxes[0], r.boxes[1], r.boxes[2]
	h0.MustTrivet("provision", "stuck", "--template", "install", "--machine", running.name, "--no-wait")
	h0.MustTrivet("provision", "waiting", "--template", "install", "--selector", "box=none", "--no-wait")
	r.awaitPowered("stuck-1")
	token := h0.MustTrivet("token", "issue", "admin")
	r.l.write()
	h0.MustTrivet("backup", "create", "--to", r.backups, "--blobs")
	saved := *r.l

	h0.MustTrivet("provision", "new", "--template", "install", "--machine", installed.name, "--no-wait")
	r.awaitPowered("new-1")
	m := installed.powerOn(t, h0)
	h0.Await("it is installed", func() error {
		if st := r.machine(r.l.cl, installed.name); st.State != trivet.MachineActive || m.up.Load() != 1 {
			return fmt.Errorf("it is %s", st.State)
		}
		return nil
	})
	r.l.write() // lost
	watched := revisionOf(t, r.l.cl)
	r.refused([]string{"recover", "--from-backup", r.backups, "--key", r.keyFile, "--data-dir", t.TempDir(), "--yes"},
		"it is alive", "has a quorum", "would have destroyed", "trivet head replace")
	h0.Await("its BMC is at rest", func() error {
		if st := r.machine(r.l.cl, installed.name); st.Intent != nil {
			return errors.New("there is an intent")
		}
		return nil
	})
	r.killAll()
	disk := m.disk(t)
	for _, p := range r.boxes {
		p.box.Log() // what was sent before
	}

	r.refused([]string{"recover", "--from-backup", r.backups, "--key", r.keyFile, "--data-dir", smallDisk(t), "--yes"},
		"MiB free", "MiB needed", "free some space")
	h := newHead(t, "head103")
	plan := r.run("recover", "--from-backup", r.backups, "--key", r.keyFile, "--data-dir", h.Dir, "--plan")
	for _, text := range []string{"Lost:    everything written after", "2 provisions, until trivet recover resolve",
		"Fenced:  head0, head1, head2", "Created: head103"} {
		if !strings.Contains(plan, text) {
			t.Errorf("the plan lacks %q:\n%s", text, plan)
		}
	}
	out := r.recover(h, "--from-backup", r.backups, "--key", r.keyFile)
	if !strings.Contains(out, "start it: trivet server --data-dir "+h.Dir+" --advertise "+h.Address) {
		t.Errorf("the output is %s", out)
	}
	began := time.Now()
	h.Up()
	t.Logf("the new head was ready after %s", time.Since(began).Round(time.Millisecond))
	cl := h.client(h)
	saved.cl = cl
	saved.read(cl)
	saved.write()
	if m, err := client.Of[trivet.Machine](cl).Get(t.Context(), machine); err != nil || m.Labels["write2"] != "done" {
		t.Errorf("what was written after the recovery: %+v, %v", m, err)
	}
	h.ClientToken = token
	if _, err := client.Of[trivet.Account](h.client(h)).Get(t.Context(), "admin"); err != nil {
		t.Errorf("a token of before: %v", err)
	}
	h.ClientToken = ""
	for e, err := range client.Of[trivet.Machine](cl).Watch(t.Context(), client.WatchOptions{From: watched}) {
		if err != nil || e.Type != client.Reset {
			t.Errorf("a watch from revision %d, which is lost: %+v, %v", watched, e, err)
		}
		break
	}

	h.Await("the BMCs were asked", func() error { // that of the machine that is off was
		if st := r.machine(cl, off.name); st.State != trivet.MachineAvailable {
			return fmt.Errorf("it is %s", st.State)
		}
		return nil
	})
	h.MustTrivet("provision", "wants", "--template", "install", "--selector", "box="+installed.name, "--no-wait")
	h.Await("no machine is free", func() error {
		p, err := client.Of[trivet.Provision](cl).Get(t.Context(), "wants")
		if err != nil || !strings.Contains(p.Status.Reason, "1 unverified") {
			return fmt.Errorf("%+v, %w", p, err)
		}
		return nil
	})
	left := h.MustTrivet("recover", "list")
	for _, text := range []string{"stuck", "waiting", "unverified: 2 machines: " + installed.name + ", m1"} {
		if !strings.Contains(left, text) {
			t.Errorf("trivet recover list lacks %q:\n%s", text, left)
		}
	}
	h.MustTrivet("recover", "resolve", "stuck", "--cancel")
	h.MustTrivet("recover", "resolve", "waiting", "--continue")
	if out, err := h.Trivet("recover", "resolve", "stuck", "--continue"); err == nil ||
		!strings.Contains(out.All, "not frozen") {
		t.Errorf("resolved twice: %v, %s", err, out.All)
	}
	if st := r.machine(cl, running.name); st.State != trivet.MachineUnverified || st.Intent != nil {
		t.Errorf("the machine of the cancelled run: %+v", st)
	}
	if p, err := client.Of[trivet.Provision](cl).Get(t.Context(), "waiting"); err != nil ||
		p.Status.State != trivet.ProvisionPending {
		t.Errorf("the provision that continues: %+v, %v", p, err)
	}
	h.expectLocalBoot(installed.mac)
	for _, p := range r.boxes {
		if got := p.box.Log(); len(got) > 0 {
			t.Errorf("the BMC of %s was sent %q after the recovery", p.name, got)
		}
	}
	if now := m.disk(t); now != disk || m.up.Load() != 1 {
		t.Errorf("the installed machine was changed:\n%s\n%s", disk, now)
	}
	r.oldHeadsReturn(h)
}

// smallDisk returns a directory on a file system of 64 MiB.
func smallDisk(t *testing.T) string {
	t.Helper()
	testhead.RequireRoot(t)
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=64m", "small", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	return filepath.Join(dir, "data")
}

// expectLocalBoot expects that a machine boots its disk.
func (h *head) expectLocalBoot(mac string) {
	h.Helper()
	if script := h.MustBoot(mac); strings.Contains(script, "initrd") || strings.Contains(script, "trivet.token") {
		h.Errorf("%s boots the installer:\n%s", mac, script)
	}
}

// oldHeadsReturn starts the former heads, which have a quorum of their own: they end, do not start again, and join as
// new heads.
func (r *recovery) oldHeadsReturn(h *head) {
	r.Helper()
	r.h1.Start()
	r.h2.Start()
	for _, old := range []*head{r.h1, r.h2} {
		old.expectRefusal("its cluster was recovered without it", "--rejoin --join URL --token TOKEN")
		old.Start()
		old.expectRefusal("its cluster was recovered without it", "--rejoin")
	}
	r.h1.Up("--join", h.API(), "--token", h.token(), "--rejoin")
	h.awaitMember("head104")
	r.l.cl = h.client(h, r.h1)
}

// revisionOf returns the revision of the store.
func revisionOf(t *testing.T, cl *client.Client) int64 {
	t.Helper()
	c, err := cl.Cluster(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c.Revision
}

// The quorum is lost, and one head is left: it continues alone as a new cluster with all that was acknowledged, and the
// others are fenced. A cluster that has a quorum is not recovered.
func TestRecoverFromSurvivor(t *testing.T) {
	t.Parallel()
	r := newRecovery(t, bmc.Off)
	r.l.write()
	r.caughtUp(r.h2)
	r.h2.Stop()
	r.refused([]string{"recover", "--from-survivor", "--data-dir", r.h2.Dir, "--yes"},
		"it is alive", "would have destroyed")
	r.h2.Up()
	r.l.write()
	r.caughtUp(r.h2)
	r.killAll()
	r.refused([]string{"recover", "--from-survivor", "--data-dir", r.h2.Dir}, "--yes")
	r.recover(r.h2, "--from-survivor")
	r.h2.Up()
	r.l.cl = r.h2.client(r.h2)
	r.l.read(r.l.cl)
	r.l.write()
	if aside, _ := filepath.Glob(filepath.Join(r.h2.Dir, "aside/recovered-*/store/etcd")); len(aside) != 1 {
		t.Errorf("archived: %v", aside)
	}
	r.h0.Start()
	r.h1.Start()
	for _, old := range []*head{r.h0, r.h1} {
		old.expectRefusal("hint:", "--rejoin --join URL --token TOKEN")
	}
	r.l.write()
	r.h0.Up("--join", r.h2.API(), "--token", r.h2.token(), "--rejoin")
	r.h2.awaitMember("head104")
	r.l.write()
	r.l.read(r.h2.client(r.h0))
}

// Of all heads only a disk is left, whose last write was not completed: another head continues with what is on it.
func TestRecoverFromDataDirectory(t *testing.T) {
	t.Parallel()
	r := newRecovery(t, bmc.Off)
	r.l.write()
	r.caughtUp(r.h1)
	r.killAll()
	if err := lab.TearLog(r.h1.Dir); err != nil {
		t.Fatal(err)
	}
	h := newHead(t, "head103")
	if out := r.run("recover", "--from-data-dir", r.h1.Dir, "--data-dir", h.Dir, "--plan"); !strings.Contains(out,
		"written incompletely") {
		t.Errorf("the plan does not say that the log is torn:\n%s", out)
	}
	r.recover(h, "--from-data-dir", r.h1.Dir)
	h.Up()
	r.l.cl = h.client(h)
	r.l.read(r.l.cl)
	r.l.write()
	if script := h.MustBoot(knownMAC); !strings.Contains(script, "#!ipxe") {
		t.Errorf("the boot script: %s", script)
	}
}

// caughtUp waits until a head has all that was written.
func (r *recovery) caughtUp(h *head) {
	r.Helper()
	h.Await("has every write", func() error {
		m, err := client.Of[trivet.Machine](r.h0.clientOnce(h)).Get(r.Context(), machine)
		if err == nil && m.Labels[fmt.Sprint("write", r.l.writes)] == "" {
			err = errors.New("a write is missing")
		}
		return err
	})
}

// A recovery that is killed at whichever moment is completed when it is run again, and no head starts before.
func TestInterruptedRecovery(t *testing.T) {
	t.Parallel()
	h0, l := startWithLedger(t)
	keyFile, backups := filepath.Join(t.TempDir(), "recovery.key"), filepath.Join(t.TempDir(), "b")
	if err := os.WriteFile(keyFile, []byte(h0.MustTrivet("backup", "key", "--yes")), 0o600); err != nil {
		t.Fatal(err)
	}
	l.write()
	h0.MustTrivet("backup", "create", "--to", backups)
	h0.Kill()
	h := newHead(t, "head101")
	args := []string{"recover", "--from-backup", backups, "--key", keyFile, "--data-dir", h.Dir, "--yes"}
	for i := range 8 { // it may be complete before it is killed
		cmd := exec.CommandContext(t.Context(), testhead.Program(t), args...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(i*i) * 30 * time.Millisecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if _, err := os.Stat(filepath.Join(h.Dir, "head.json")); err == nil {
			break
		}
		if _, err := os.Stat(filepath.Join(h.Dir, "recovering")); err == nil {
			h.Start()
			h.expectRefusal("a recovery into it was not completed", "run the same trivet recover again")
		}
	}
	if _, err := os.Stat(filepath.Join(h.Dir, "recovering")); err == nil || !isRecovered(h) {
		if out, err := exec.Command(testhead.Program(t), args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	h.Up()
	l.cl = h.client(h)
	l.read(l.cl)
	l.write()
}

func isRecovered(h *head) bool {
	_, err := os.Stat(filepath.Join(h.Dir, "head.json"))
	return err == nil
}
