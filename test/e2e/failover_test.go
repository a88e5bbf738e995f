package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/bmc/bmctest"
	"github.com/trivet-project/trivet/internal/lab"
	"github.com/trivet-project/trivet/internal/lab/vm"
)

// failover is a provision by a selector of two machines with BMCs. The disk of the first one, fo1, fails during the
// write of the image.
type failover struct {
	*site
	first, second *box
	firstBMC      *bmctest.IPMI
}

func newFailover(s *site) *failover {
	s.Helper()
	f := &failover{site: s}
	f.first = f.plug(f.net, vm.Config{Name: "fo1", Firmware: vm.BIOS}, "52:54:00:77:00:11", usedOffset(s.T))
	f.second = f.plug(f.net, vm.Config{Name: "fo2", Firmware: vm.BIOS}, "52:54:00:77:00:12", 0)
	f.firstBMC = f.first.addBMC(6231)
	f.second.addBMC(6232)
	f.writeUserData()
	return f
}

// usedOffset returns an offset, not near the beginning, at which the image has data.
func usedOffset(t *testing.T) int64 {
	t.Helper()
	image, err := os.Open(preparedDebian(t).Raw)
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	const sector = 512
	buf, zero := make([]byte, sector), make([]byte, sector)
	for offset := int64(200 << 20); ; offset += sector {
		if _, err := io.ReadFull(io.NewSectionReader(image, offset, sector), buf); err != nil {
			t.Fatalf("the image has no data after 200 MiB: %v", err)
		}
		if !bytes.Equal(buf, zero) {
			return offset
		}
	}
}

const bmcMachineYAML = `
kind: Secret
name: bmc-%[1]s
spec:
  data: {user: %[2]q, password: %[3]q}
  addresses: [%[6]s/32]
---
kind: Machine
name: %[1]s
labels: {pool: failover}
spec:
  arch: amd64
  disk: {path: /dev/vda}
  journal: /dev/vdb
  nics: [{mac: %[4]q}]
  bmc: {protocol: ipmi, address: %[5]q, secret: bmc-%[1]s}
`

// addBMC starts the machine's BMC, and creates the machine's record.
func (b *box) addBMC(port int) *bmctest.IPMI {
	b.s.Helper()
	sim, err := bmctest.StartIPMI(&lab.Powered{Machine: b.Machine}, bmctest.Options{
		Address: b.s.address, Port: port, Wrap: []string{"ip", "netns", "exec", b.s.net.Name()}})
	if err != nil {
		b.s.Fatal(err)
	}
	b.s.Cleanup(func() { _ = sim.Stop() })
	b.s.apply(fmt.Sprintf(bmcMachineYAML, b.name, sim.Config.User, sim.Config.Password, b.MAC, sim.Config.Address,
		b.s.address))
	return sim
}

// provision requests the installation of one of the machines.
func (f *failover) provision() {
	f.Helper()
	f.trivet("provision", "web", "--template", "debian", "--selector", "pool=failover", "--hostname", "web",
		"--user-data", f.path("user-data"), "--ssh-key", f.path("key.pub"), "--no-wait")
}

// mustSwitch waits until the second machine is installed, and returns the record and what the operator saw.
func (f *failover) mustSwitch() (p trivet.Provision, out string) {
	f.Helper()
	out, err := f.try("provision", "web", "--watch")
	if err != nil {
		f.Fatalf("%v\n%s", err, out)
	}
	if err := json.Unmarshal([]byte(f.trivet("get", "provisions", "web", "-o", "json")), &p); err != nil {
		f.Fatal(err)
	}
	if p.Status.Machine != "fo2" || len(p.Status.Spent) != 1 || p.Status.Spent[0].Machine != "fo1" ||
		p.Status.Spent[0].Failure.Step != "image" {
		f.Errorf("the provision: %+v", p.Status)
	}
	return p, out
}

// addresses returns the addresses that a machine has.
func (f *failover) addresses(machine string) []string {
	f.Helper()
	names := strings.Fields(f.trivet("get", "addresses", "--field", "spec.machine="+machine, "-o", "name"))
	for i := range names {
		names[i] = strings.TrimPrefix(names[i], "address/")
	}
	return names
}

// mustServe logs in to the installed system of the second machine at its address.
func (f *failover) mustServe(address string) {
	f.Helper()
	if got := f.second.login("alice", address); !slices.Equal(got, []string{"alice", "web", address + "/24", "/dev/vda3"}) {
		f.Errorf("the installed system prints %q", got)
	}
}

// A machine whose disk fails during the write is powered off and quarantined. Another one is installed with the same
// configuration and address, and the operator's command says so.
func TestFailoverToAnotherMachine(t *testing.T) {
	t.Parallel()
	f := newFailover(newSite(t, "e2e-fo"))
	f.provision()
	p, out := f.mustSwitch()
	address := p.Status.Spent[0].Address
	for _, want := range []string{"image failed on fo1 (machine): ",
		"its address " + address + " moves to the next machine once it is off", "succeeded on machine fo2"} {
		if !strings.Contains(out, want) {
			t.Errorf("the command did not print %q:\n%s", want, out)
		}
	}
	f.mustMove(p)
	f.mustBeFound()
}

// mustBeFound checks the machine whose disk fails: the check finds it, so that it stays in quarantine.
func (f *failover) mustBeFound() {
	f.Helper()
	out, err := f.try("check", "fo1", "--full", "--wait")
	got := f.trivet("get", "machines", "fo1")
	if err == nil || !strings.Contains(out, "/dev/vda: ") || !strings.Contains(out, "input/output error") ||
		!strings.Contains(got, "quarantined") {
		f.Errorf("the check of a machine whose disk fails: %v\n%s\n%s", err, out, got)
	}
}

// mustMove checks that the first machine is off, and the second one serves at its address.
func (f *failover) mustMove(p trivet.Provision) {
	f.Helper()
	address := p.Status.Spent[0].Address
	if address == "" || p.Status.Address != address {
		f.Errorf("the first machine had %s, the second one %s", address, p.Status.Address)
	}
	if got := f.trivet("get", "machines", "fo1"); !strings.Contains(got, "quarantined") || f.first.Running() {
		f.Errorf("the first machine, on: %t:\n%s", f.first.Running(), got)
	}
	if first, second := f.addresses("fo1"), f.addresses("fo2"); len(first) != 0 || !slices.Equal(second, []string{address}) {
		f.Errorf("the addresses of the machines: %q, %q; want none, %s", first, second, address)
	}
	f.mustServe(address)
}

// The same while each of three heads is killed once: while the first machine is being installed, after its failure,
// and while the second one is being installed.
func TestSoakFailoverWithEachHeadKilled(t *testing.T) {
	soak(t)
	t.Parallel()
	c, f := newClusterFailover(t, "e2e-foh")
	f.imageIsBeingWritten("web-1")
	c.mustBounceEach(f)
	p, _ := f.mustSwitch()
	f.mustMove(p)
}

// The same, and the BMC of the first machine does not answer from the moment on at which its disk is being written.
func TestSoakFailoverWithoutBMCAndEachHeadKilled(t *testing.T) {
	soak(t)
	t.Parallel()
	c, f := newClusterFailover(t, "e2e-fobh")
	f.imageIsBeingWritten("web-1")
	if err := f.firstBMC.Stop(); err != nil {
		t.Fatal(err)
	}
	c.mustBounceEach(f)
	p, _ := f.mustSwitch()
	f.mustStay(p)
}

// newClusterFailover is newFailover with three heads, and the provision.
func newClusterFailover(t *testing.T, name string) (*cluster, *failover) {
	t.Helper()
	c := newCluster(t, name, 3)
	c.importPlatform()
	c.importDebian()
	f := newFailover(c.site)
	f.provision()
	return c, f
}

// mustBounceEach kills one head at once, one when the first machine has failed, and one while the second one is being
// installed.
func (c *cluster) mustBounceEach(f *failover) {
	c.Helper()
	c.mustBounce(c.heads[0])
	f.waitFor("the first machine is in quarantine", 5*time.Minute, func() bool {
		out, err := f.output("get", "machines", "fo1")
		return err == nil && strings.Contains(out, "quarantined")
	})
	c.mustBounce(c.heads[1])
	f.imageIsBeingWritten("web-2")
	c.mustBounce(c.heads[2])
}

// mustBounce kills a head and starts it again.
func (c *cluster) mustBounce(h *head) {
	c.Helper()
	undo, err := c.kill(h)
	if err == nil {
		err = undo()
	}
	if err != nil {
		c.Fatal(err)
	}
}

// Where the BMC of the failed machine does not answer, it may still run: it keeps its address, and the second machine
// has another one.
func TestSoakFailoverWithoutBMC(t *testing.T) {
	soak(t)
	t.Parallel()
	f := newFailover(newSite(t, "e2e-fob"))
	f.provision()
	f.imageIsBeingWritten("web-1")
	if err := f.firstBMC.Stop(); err != nil {
		t.Fatal(err)
	}
	p, _ := f.mustSwitch()
	f.mustStay(p)
}

// mustStay checks that the first machine has its address still, and the second one serves at another one.
func (f *failover) mustStay(p trivet.Provision) {
	f.Helper()
	if first := p.Status.Spent[0].Address; first == "" || first == p.Status.Address || !f.first.Running() ||
		!slices.Equal(f.addresses("fo1"), []string{first}) {
		f.Errorf("the first machine, on: %t: %+v", f.first.Running(), p.Status)
	}
	if why := f.trivet("why", "fo2"); !strings.Contains(why, "its BMC did not report machine fo1 off") {
		f.Errorf("trivet why fo2:\n%s", why)
	}
	f.mustServe(p.Status.Address)
}
