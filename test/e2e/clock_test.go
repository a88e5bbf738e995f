package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/lab/vm"
	"github.com/trivet-project/trivet/internal/lab/vm/vmtest"
	"github.com/trivet-project/trivet/internal/platform"
	"github.com/trivet-project/trivet/internal/testhead"
)

// A head whose clock is ten minutes off is not admitted, and its token remains valid. A member that returns with such
// a clock is reported and still serves: with one of the others dead nothing is written without it, an agent
// that knows no other head runs, and no deadline fires early by its clock, or never.
func TestHeadWithAnotherClock(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "e2e-clock", 2)
	h := newClockHead(c)
	joining := strings.Join(c.joining(), " ")

	h.boot(wrong, joining)
	h.mustPrint(`new head's clock is (9m5\ds|10m\ds) ahead of that of head0`)
	h.mustPrint(`set both clocks, best by NTP.* the token is still valid`)
	h.mustEnd()

	h.boot(0, joining)
	c.awaitMember(h.name)
	h.mustBeMember("")
	c.createNoops()
	far := h.await("far", farLimit)
	h.PowerOff()

	h.mustServe(wrong, "ahead", c.heads[0])
	far.mustWait()
	h.mustServe(-wrong, "behind", c.heads[1])
	far.mustWait()
}

const (
	wrong        = 10 * time.Minute
	clockAddress = "10.77.0.3"
	clockURL     = "https://" + clockAddress + ":7480"
	clockMAC     = "52:54:00:77:00:0c"
	// Deadlines: one that is longer than this test, and that such a clock would end at once; and one that it waits
	// for.
	farLimit, nearLimit = wrong - time.Minute, 10 * time.Second
)

// clockHead is a head in a machine of its own, with a clock of its own.
type clockHead struct {
	*box
	c    *cluster
	runs int // requested
}

// newClockHead adds a machine whose disk has the program under test. It gets its address from the other heads.
func newClockHead(c *cluster) *clockHead {
	c.Helper()
	c.apply(networkYAML)
	c.apply(fmt.Sprintf("kind: Machine\nname: clock\nspec:\n  nics: [{mac: %q, address: %s}]\n", clockMAC,
		clockAddress))
	r := vmtest.NewPlatform(c.T, c.T.TempDir(), platform.KernelCloud, "./testdata/head")
	mac, err := net.ParseMAC(clockMAC)
	if err != nil {
		c.Fatal(err)
	}
	m, err := vm.NewMachine(c.Context(), c.net, vm.Config{
		Name: "clock", MAC: mac, Firmware: vm.BIOS, Dir: c.path("clock"), Kernel: r.Kernel, Initrd: r.Initrd,
		Disks: []vm.Disk{{Path: c.programDisk()}},
	})
	if err != nil {
		c.Fatal(err)
	}
	h := &clockHead{box: &box{Machine: m, s: c.site, name: "head2"}, c: c}
	c.Cleanup(func() { _ = m.Close() })
	c.Cleanup(h.printLog)
	return h
}

// programDisk is a disk with the program under test, those of iPXE, and room for a head's data.
func (c *cluster) programDisk() string {
	c.Helper()
	files, disk := c.TempDir(), c.path("clock.disk")
	program, err := os.ReadFile(c.binary)
	err = errors.Join(err, os.WriteFile(files+"/trivet", program, 0o755),
		os.CopyFS(files+"/ipxe", os.DirFS("/usr/lib/ipxe")))
	if err != nil {
		c.Fatalf("%v; try apt-get install ipxe", err)
	}
	mkfs := exec.CommandContext(c.Context(), "mkfs.ext4", "-q", "-d", files, disk, "1G")
	if out, err := mkfs.CombinedOutput(); err != nil {
		c.Fatalf("%v: %s; try apt-get install e2fsprogs", err, out)
	}
	return disk
}

// boot starts the head, with more flags for this time, by a clock that is so far ahead.
func (h *clockHead) boot(ahead time.Duration, more string) {
	h.c.Helper()
	h.Args = []string{"-rtc", "base=" + time.Now().Add(ahead).UTC().Format("2006-01-02T15:04:05")}
	h.Append = `console=ttyS0 loglevel=5 panic=20 head="server --data-dir /mnt/data --ipxe /mnt/ipxe --dhcp eth0 ` +
		more + `"`
	h.powerOn()
}

// mustEnd waits until the machine is off.
func (h *clockHead) mustEnd() {
	h.c.Helper()
	ctx, cancel := context.WithTimeout(h.c.Context(), time.Minute)
	defer cancel()
	if err := h.WaitOff(ctx); err != nil {
		h.c.Fatal(err)
	}
}

// mustBeMember waits until the first head sees it as a member with that problem.
func (h *clockHead) mustBeMember(problem string) {
	h.c.Helper()
	re := regexp.MustCompile(`(?m)^` + h.name + ` +voter +(member|leader) +now .*:7480 *` + problem + ` *$`)
	h.c.waitFor(h.name+" is seen as a member: "+problem, 2*time.Minute, func() bool {
		out, err := h.c.try("head", "list")
		return err == nil && re.MatchString(out)
	})
}

// mustServe boots the head by a clock that is off, loses another one, and lets the cluster work by this one.
func (h *clockHead) mustServe(off time.Duration, way string, lost *head) {
	h.c.Helper()
	h.boot(off, "")
	h.mustBeMember(`its clock is (9m5\ds|10m\ds) ` + way + `; synchronize it by NTP`)
	lost.kill()
	h.c.endpoints = clockURL // operators use no other head
	near := h.await("near", nearLimit)
	h.mustGuide(h.await("far", farLimit))
	near.mustEnd(trivet.WorkflowFailed)
	h.c.endpoints = ""
	lost.mustStart()
	h.PowerOff()
}

// createNoops gives the cluster something to boot, which no machine does here, and work that touches no machine.
func (c *cluster) createNoops() {
	c.Helper()
	dir := c.TempDir()
	for _, name := range []string{"vmlinuz", "initrd.img"} {
		if err := os.WriteFile(dir+"/"+name, []byte("none"), 0o600); err != nil {
			c.Fatal(err)
		}
	}
	c.trivet("platform", "import", dir, "--name", "none", "--default")
	for name, limit := range map[string]time.Duration{"far": farLimit, "near": nearLimit} {
		c.apply(fmt.Sprintf(noopYAML, name, limit))
	}
}

const noopYAML = `
kind: Template
name: %s
spec:
  limits: {dhcp: {timeout: %s, retries: 0}}
  actions:
  - {name: first, use: noop, with: {sleep: 1s}}
  - {name: second, use: noop, with: {sleep: 1s}}
`

// awaited is a run on a machine that does not boot by itself.
type awaited struct {
	c         *cluster
	name, mac string
	runs      int           // its number
	limit     time.Duration // of the wait for it
	since     time.Time
}

// await requests a run on a new machine.
func (h *clockHead) await(template string, limit time.Duration) *awaited {
	h.c.Helper()
	h.runs++
	a := &awaited{h.c, fmt.Sprint(template, h.runs), fmt.Sprintf("52:54:00:77:01:%02x", h.runs), h.runs, limit,
		time.Now()}
	h.c.apply(fmt.Sprintf("kind: Machine\nname: %s\nspec:\n  nics: [{mac: %q, address: %s}]\n", a.name, a.mac,
		a.address()))
	h.c.trivet("provision", a.name, "--template", template, "--machine", a.name, "--no-wait")
	return a
}

// address returns the machine's address, by which alone its boot script can be fetched.
func (a *awaited) address() string { return "10.77.0." + fmt.Sprint(200+a.runs) }

// run returns its record.
func (a *awaited) run() (w trivet.Workflow) {
	if out, err := a.c.output("get", "workflows", a.name+"-1", "-o", "json"); err == nil {
		if err := json.Unmarshal([]byte(out), &w); err != nil {
			a.c.Error(err)
		}
	}
	return w
}

// mustEnd waits until the run ended so; by its deadline, where it failed.
func (a *awaited) mustEnd(state trivet.WorkflowState) {
	a.c.Helper()
	a.c.waitFor(a.name+" ends", 2*time.Minute, func() bool { return a.run().Status.State.Ended() })
	took, w := time.Since(a.since), a.run()
	if w.Status.State != state || state == trivet.WorkflowFailed && took < a.limit {
		a.c.Errorf("%s ended after %s, with a deadline of %s: %+v", a.name, took, a.limit, w.Status)
	}
}

// mustWait checks that the run still waits.
func (a *awaited) mustWait() {
	a.c.Helper()
	w, took := a.run(), time.Since(a.since)
	step := w.Status.Current()
	if step == nil || step.Name != trivet.StepDHCP {
		a.c.Errorf("%s began %s ago, with a deadline of %s: %+v", a.name, took, a.limit, w.Status)
		return
	}
	a.c.Logf("%s: waits since %s", a.name, took)
}

// mustGuide lets this head alone direct a real agent, outside of any machine.
func (h *clockHead) mustGuide(a *awaited) {
	h.c.Helper()
	script := h.c.scriptFor(a.mac, a.address(), clockAddress)
	arg := func(key string) string {
		return strings.TrimPrefix(regexp.MustCompile(`trivet\.`+key+`=\S+`).FindString(script),
			"trivet."+key+"=")
	}
	// It keeps its state in /run: here a /run of its own, in the mount namespace that ip makes for it.
	cmd := h.c.command("sh", "-c", `mount -t tmpfs tmpfs /run && exec "$0" "$@"`, h.c.binary, "agent",
		"--url", clockURL, "--ca", arg("ca"), "--token", arg("token"), "--machine", a.name, "--mac", a.mac)
	agent, err := testhead.Start(cmd)
	if err != nil {
		h.c.Fatal(err)
	}
	defer agent.Kill()
	a.mustEnd(trivet.WorkflowSucceeded)
}
