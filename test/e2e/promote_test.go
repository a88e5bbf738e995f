package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet/internal/dhcp"
	"github.com/trivet-project/trivet/internal/lab/vm"
	"github.com/trivet-project/trivet/internal/testhead"
)

// A machine becomes a head by docs/examples/head.yaml as it is, boots from its disk, and serves: its service runs under
// its own systemd, what is written at one head is read at the other one, and firmware gets its address and program from
// it. After a loss of its power it netboots by the first head, which has no quorum alone, boots its disk and is a
// member again. By trivet head demote it is wiped, and the first head is alone, and well.
func TestSoakPromotedMachineBoots(t *testing.T) {
	soak(t)
	t.Parallel()
	p := newPromoted(t)
	p.promote()
	p.mustServe()
	p.losePower()
	p.mustServe()
	p.demote()
}

// promoted is a machine with a BMC that becomes the second head.
type promoted struct {
	*cluster
	box     *box
	address string
	since   time.Time // of the stage
	writes  int
}

func newPromoted(t *testing.T) *promoted {
	t.Helper()
	p := &promoted{cluster: newCluster(t, "e2e-promote", 1)}
	p.head.kill()
	p.head.flags = append(p.head.flags, "--heartbeat", "300ms") // for an emulated head
	p.head.mustStart()
	p.importPlatform()
	p.importDebian()
	p.backUp()
	p.box = p.plug(p.net, vm.Config{Name: "m7", Firmware: vm.UEFIPXE}, "52:54:00:77:00:61", 0)
	p.box.addBMC(6234)
	p.apply("kind: Machine\nname: m8\nspec: {nics: [{mac: \"52:54:00:77:00:62\"}]}\n") // it gets an address only
	p.Cleanup(p.printHeadLog)
	p.writeUserData() // and the key of --ssh-key
	p.mustBeAlone()
	p.since = time.Now()
	return p
}

// mustBeAlone waits until nothing is wrong but that there is no other head.
func (p *promoted) mustBeAlone() {
	p.Helper()
	p.mustHaveStatus(1, "0 broken, 1 with a warning", "spare: the loss of head0 stops everything: it is the only head")
}

// stage logs how long something has taken.
func (p *promoted) stage(what string) {
	p.Helper()
	p.Logf("%s: %.0f s", what, time.Since(p.since).Seconds())
	p.since = time.Now()
}

// promote makes the machine a head, by the commands of docs/heads.md. What differs, as the machine is
// emulated, on a computer that does something else as well: deadlines and the heartbeat are longer.
func (p *promoted) promote() {
	p.Helper()
	p.trivet("apply", "-f", "../../docs/examples/head.yaml")
	p.trivet("patch", "template", "head", longLimits)
	args := []string{"head", "promote", "m7", "--param", "settings=dhcp: [enp0s2]\nheartbeat: 300ms",
		"--ssh-key", p.path("key.pub")}
	plan := p.trivet(append(args, "--plan")...)
	for _, text := range []string{"machine/m7 is INSTALLED as a head, a voter at 10.77.0.", "Image:   debian-12, sha256:",
		"afterwards 2 of 2 voters respond, and 2 must"} {
		if !strings.Contains(plan, text) {
			p.Errorf("the plan lacks %q:\n%s", text, plan)
		}
	}
	out := p.trivet(append(args, "--yes", "--timeout", "20m")...)
	p.stage("installed, and a member")
	p.Log(out)
	if !strings.Contains(out, "machine/m7 is head/head1, a voter\n") {
		p.Error("the command does not say that the machine is a head")
	}
	p.address = p.box.address()
	p.Log(p.trivet("why", "m7"))
	p.box.mustPrint(`Cloud-init v\. \S+ finished`) // what follows on the console is of the next boot
}

// mustServe checks the new head as its members, operators and machines see it.
func (p *promoted) mustServe() {
	p.Helper()
	listed := regexp.MustCompile(`(?m)^head1 +voter +(member|leader) +now +\S+ +https://` +
		regexp.QuoteMeta(p.address) + `:7480 *$`)
	p.waitFor("head1 is a member at "+p.address+", without a problem", 10*time.Minute, func() bool {
		out, err := p.try("head", "list")
		return err == nil && listed.MatchString(out)
	})
	if now := p.box.address(); now != p.address {
		p.Errorf("the machine has the addresses %s, want %s only", now, p.address)
	}
	p.awaitStatus(10*time.Minute, 1, "0 broken, 1 with a warning", "spare: ") // it has all blobs
	p.stage("in full service")
	p.mustRunAsService()
	p.mustBootOthers()
	first, second := testhead.APIURL(headAddress), testhead.APIURL(p.address)
	p.mustReplicate(first, second)
	p.mustReplicate(second, first)
	p.stage("all is checked")
}

// mustRunAsService checks the installed system: the head is a service of its systemd, and root can run trivet.
func (p *promoted) mustRunAsService() {
	p.Helper()
	out := p.box.run("debian", p.address, `findmnt -no SOURCE /; hostname
systemctl show --value -p ActiveState -p SubState -p User -p NRestarts trivet
systemctl --failed --plain --no-legend; sudo trivet head list -o name 2>/dev/null`)
	want := []string{"/dev/vda3", "m7", "active", "0", "running", "trivet", "head/head0", "head/head1"}
	if got := strings.Fields(out); !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
		p.Errorf("the installed system prints %q, want %q", got, want)
	}
}

// mustBootOthers checks that firmware gets an address and iPXE from the new head, whose image has that.
func (p *promoted) mustBootOthers() {
	p.Helper()
	var conn net.PacketConn
	err := p.net.Do(func() (err error) {
		conn, err = net.ListenPacket("udp4", switchAddress+":0")
		return err
	})
	if err != nil {
		p.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(p.Context(), time.Minute)
	defer cancel()
	lease, err := dhcp.Exchange(ctx, conn, &net.UDPAddr{IP: net.ParseIP(p.address), Port: 67},
		dhcp.ClientConfig{MAC: net.HardwareAddr{0x52, 0x54, 0, 0x77, 0, 0x62}, Relay: netip.MustParseAddr(switchAddress)})
	if err != nil || lease.Address.Addr().String() == p.address || lease.Server.String() != p.address {
		p.Errorf("DHCP: %+v, %v; want an address from %s", lease, err, p.address)
	}
	want, errWant := os.ReadFile("/usr/lib/ipxe/snponly.efi")
	got, err := p.command("curl", "-sf", "--max-time", "120", "tftp://"+p.address+"/snponly.efi").Output()
	if errWant != nil || err != nil || !bytes.Equal(got, want) {
		p.Errorf("TFTP: %d bytes, %v; want %d, %v", len(got), err, len(want), errWant)
	}
}

// mustReplicate writes a record at one head, and reads it at another one.
func (p *promoted) mustReplicate(to, from string) {
	p.Helper()
	p.writes++
	name := fmt.Sprintf("written%d", p.writes)
	p.endpoints = to
	p.apply("kind: Template\nname: " + name + "\nspec: {actions: [{name: a, use: noop}]}\n")
	p.endpoints = from
	p.trivet("get", "templates", name)
	p.endpoints = ""
}

// losePower turns the machine off and on.
func (p *promoted) losePower() {
	p.Helper()
	p.box.PowerOff()
	p.mustHaveStatus(2, "no quorum")
	p.since = time.Now()
	p.box.powerOn()
	p.box.mustPrint(`Station IP address is ` + regexp.QuoteMeta(p.address))
	p.stage("power-on to its own address, by the first head alone")
}

func (p *promoted) demote() {
	p.Helper()
	p.Log(p.trivet("head", "demote", "head1", "--plan"))
	out := p.trivet("head", "demote", "head1", "--yes", "--wait")
	p.stage("demoted, wiped and available")
	p.Log(out)
	if out := p.trivet("head", "list"); strings.Contains(out, "head1") {
		p.Errorf("the head is still listed:\n%s", out)
	}
	p.mustBeAlone()
	mustBeZero(p.T, p.box.Disks[0].Path)
}

// printHeadLog prints the log of the new head when the test failed.
func (p *promoted) printHeadLog() {
	if p.Failed() && p.address != "" && p.box.Running() {
		p.Logf("log of head1:\n%s", p.box.run("debian", p.address, "sudo journalctl -u trivet --no-pager | tail -n 100"))
	}
}
