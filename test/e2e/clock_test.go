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
)

// A head's clock is ten minutes off. So it does not get in, and its token is still good; a member that comes back with it is told
// of and serves all the same: with one of the others dead nothing is written without it, an agent that knows no other head does
// its work, and no deadline fires early by its clock, or never.
func TestHeadWithAnotherClock(t *testing.T) {
	c := newCluster(t, "e2e-clock", 2)
	h := newClockHead(c)
	joining := strings.Join(c.joining(), " ")

	h.boot(ahead, joining)
	h.mustSay(`new head's clock is (9m5\ds|10m\ds) ahead of that of head0`)
	h.mustSay(`set both clocks, best by NTP.* the token is still good`)
	h.mustEnd()

	h.boot(0, joining)
	c.mustCount(h.name)
	h.mustBeSeen("")
	c.learnNoops()
	far := c.await("far", farLimit)
	h.PowerOff()

	h.boot(ahead, "")
	h.mustBeSeen(`its clock is (9m5\ds|10m\ds) ahead; set it by NTP`)
	c.head.kill()
	t.Setenv("TRIVET_ENDPOINTS", "https://"+clockAddress+":7480")
	near := c.await("near", nearLimit)
	h.mustServeAgent("worker")
	near.mustEnd(trivet.WorkflowFailed)
	far.mustWait()
}

const (
	ahead        = 10 * time.Minute
	clockAddress = "10.77.0.3"
	clockMAC     = "52:54:00:77:00:0c"
	// Deadlines: one that this test does not live to see, and that the clock would end at once; and one that it waits for.
	farLimit, nearLimit = ahead - time.Minute, 10 * time.Second
)

// clockHead is a head in a machine of its own, with a clock of its own.
type clockHead struct {
	*box
	c *cluster
}

// newClockHead plugs in a machine whose disk has the program under test. It has its address from the other heads.
func newClockHead(c *cluster) *clockHead {
	c.Helper()
	c.apply(networkYAML)
	c.apply(fmt.Sprintf("kind: Machine\nname: clock\nspec:\n  nics: [{mac: %q, address: %s}]\n", clockMAC, clockAddress))
	r := vmtest.Platform(c.T, c.T.TempDir(), platform.KernelCloud, "./testdata/head")
	mac, err := net.ParseMAC(clockMAC)
	if err != nil {
		c.Fatal(err)
	}
	m, err := vm.NewMachine(c.ctx, c.net, vm.Config{
		Name: "clock", MAC: mac, Firmware: vm.BIOS, Dir: c.path("clock"), Kernel: r.Kernel.Path, Initrd: r.Initrd.Path,
		Disks: []vm.Disk{{Path: c.programDisk()}},
	})
	if err != nil {
		c.Fatal(err)
	}
	h := &clockHead{&box{Machine: m, s: c.site, name: "head2"}, c}
	c.Cleanup(func() { _ = m.Close() })
	c.Cleanup(h.tell)
	return h
}

// programDisk is a disk with the program under test, those of iPXE, and room for a head's data.
func (c *cluster) programDisk() string {
	c.Helper()
	files, disk := c.TempDir(), c.path("clock.disk")
	program, err := os.ReadFile(c.binary)
	if err := errors.Join(err, os.WriteFile(files+"/trivet", program, 0o755), os.CopyFS(files+"/ipxe", os.DirFS("/usr/lib/ipxe"))); err != nil {
		c.Fatalf("%v; try apt-get install ipxe", err)
	}
	if out, err := exec.CommandContext(c.ctx, "mkfs.ext4", "-q", "-d", files, disk, "1G").CombinedOutput(); err != nil {
		c.Fatalf("%v: %s; try apt-get install e2fsprogs", err, out)
	}
	return disk
}

// boot starts the head, with more flags for this time, by a clock that is so far ahead.
func (h *clockHead) boot(ahead time.Duration, more string) {
	h.c.Helper()
	h.Args = []string{"-rtc", "base=" + time.Now().Add(ahead).UTC().Format("2006-01-02T15:04:05")}
	h.Append = `console=ttyS0 loglevel=5 panic=20 head="server --data-dir /mnt/data --ipxe /mnt/ipxe --dhcp eth0 ` + more + `"`
	h.powerOn()
}

// mustEnd waits until the machine went off.
func (h *clockHead) mustEnd() {
	h.c.Helper()
	ctx, cancel := context.WithTimeout(h.c.ctx, time.Minute)
	defer cancel()
	if err := h.WaitOff(ctx); err != nil {
		h.c.Fatal(err)
	}
}

// mustBeSeen waits until the first head sees it as a member with that problem.
func (h *clockHead) mustBeSeen(problem string) {
	h.c.Helper()
	re := regexp.MustCompile(`(?m)^` + h.name + ` +voter +(member|leader) +now .*:7480 *` + problem + ` *$`)
	var out string
	defer func() { h.c.Log(out) }()
	h.c.waitFor(h.name+" is seen as a member: "+problem, 2*time.Minute, func() (so bool) {
		out, _ = h.c.try("head", "list")
		return re.MatchString(out)
	})
}

// learnNoops gives the cluster something to boot, which no machine does here, and work that touches no machine.
func (c *cluster) learnNoops() {
	c.Helper()
	dir := c.TempDir()
	for _, name := range []string{"vmlinuz", "initrd.img"} {
		if err := os.WriteFile(dir+"/"+name, []byte("none"), 0o600); err != nil {
			c.Fatal(err)
		}
	}
	c.trivet("platform", "import", dir, "--name", "none", "--default")
	for name, limit := range map[string]time.Duration{"far": farLimit, "near": nearLimit, "worker": farLimit} {
		c.apply(fmt.Sprintf(noopYAML, name, limit))
	}
}

const noopYAML = `
kind: Template
name: %s
spec:
  limits: {dhcp: {timeout: %s, tries: 1}}
  actions:
  - {name: first, use: noop, with: {sleep: 1s}}
  - {name: second, use: noop, with: {sleep: 1s}}
`

// awaited is a run on a machine that does not come by itself.
type awaited struct {
	c     *cluster
	name  string
	limit time.Duration
	since time.Time
}

// await claims a new machine for the template of its name.
func (c *cluster) await(name string, limit time.Duration) *awaited {
	c.Helper()
	c.apply(fmt.Sprintf("kind: Machine\nname: %s\nspec: {nics: [{mac: %q}]}\n", name, macsOfAwaited[name]))
	a := &awaited{c, name, limit, time.Now()}
	c.trivet("provision", name, "--template", name, "--machine", name, "--no-wait")
	return a
}

var macsOfAwaited = map[string]string{"far": "52:54:00:77:01:01", "near": "52:54:00:77:01:02", "worker": "52:54:00:77:01:03"}

// run is what the heads say of it.
func (a *awaited) run() (w trivet.Workflow) {
	if out, err := a.c.try("get", "workflows", a.name+"-1", "-o", "json"); err == nil {
		if err := json.Unmarshal([]byte(out), &w); err != nil {
			a.c.Error(err)
		}
	}
	return w
}

// mustEnd waits until the run ended so, and not before its time.
func (a *awaited) mustEnd(state trivet.WorkflowState) {
	a.c.Helper()
	a.c.waitFor(a.name+" ends", 2*time.Minute, func() bool { return a.run().Status.State.Ended() })
	took, w := time.Since(a.since), a.run()
	if w.Status.State != state || state == trivet.WorkflowFailed && took < a.limit {
		a.c.Errorf("%s ended after %s, with a deadline of %s: %+v", a.name, took, a.limit, w.Status)
	}
}

// mustWait checks that nobody has counted more time of the run's wait than went by.
func (a *awaited) mustWait() {
	a.c.Helper()
	w := a.run()
	step := w.Status.Current()
	if step == nil || step.Name != trivet.StepDHCP || step.Elapsed.D() > time.Since(a.since) {
		a.c.Errorf("%s began %s ago, with a deadline of %s: %+v", a.name, time.Since(a.since), a.limit, w.Status)
		return
	}
	a.c.Logf("%s: waited %s, of which the heads have counted %s", a.name, time.Since(a.since), step.Elapsed)
}

// mustServeAgent lets the head alone tell a real agent, outside of any machine, what to do.
func (h *clockHead) mustServeAgent(name string) {
	h.c.Helper()
	a := h.c.await(name, farLimit)
	mac := macsOfAwaited[name]
	script, err := h.c.command(h.c.ctx, "curl", "-sf", "http://"+clockAddress+":7481/boot/script/"+mac).CombinedOutput()
	if err != nil {
		h.c.Fatalf("boot script: %v: %s", err, script)
	}
	arg := func(key string) string {
		return strings.TrimPrefix(regexp.MustCompile(`trivet\.`+key+`=\S+`).FindString(string(script)), "trivet."+key+"=")
	}
	// The agent keeps its state in /run: here in one of its own, as ip gives it a mount namespace.
	cmd := h.c.command(h.c.ctx, "sh", "-c", `mount -t tmpfs tmpfs /run && exec "$0" "$@"`, h.c.binary, "agent",
		"--url", "https://"+clockAddress+":7480", "--ca", arg("ca"), "--token", arg("token"), "--machine", name, "--mac", mac)
	said, err := os.Create(h.c.path("agent.log"))
	if err != nil {
		h.c.Fatal(err)
	}
	defer said.Close()
	cmd.Stdout, cmd.Stderr = said, said
	stop, err := vm.Start(h.c.net, cmd)
	if err != nil {
		h.c.Fatal(err)
	}
	defer stop()
	a.mustEnd(trivet.WorkflowSucceeded)
	text, _ := os.ReadFile(said.Name())
	h.c.Logf("the agent said:\n%s", text)
}
