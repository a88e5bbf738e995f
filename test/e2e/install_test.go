// Package e2e_test installs real machines: QEMU with real firmware netboots from a real head, is installed by a workflow,
// and comes up from its own disk with what real cloud-init made of what we gave it.
package e2e_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet/internal/lab/vm"
)

const userData = `#cloud-config
users:
- name: operator
  shell: /bin/bash
  sudo: "ALL=(ALL) NOPASSWD:ALL"
  ssh_authorized_keys: ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE2eOperatorKeyOperatorKeyOperatorKeyOpera op@e2e"]
runcmd:
- [sh, -c, 'echo "E2E host=$(hostname) uid=$(id -u operator) keys=$(grep -c E2eOperator ~operator/.ssh/authorized_keys) ip=$(ip -4 -o addr show scope global | tr -s " " | cut -d" " -f4) root=$(findmnt -no SOURCE /)" >/dev/ttyS0']
`

var firstBoot = regexp.MustCompile(`E2E host=(\S+) uid=(\S+) keys=(\S+) ip=(\S+) root=(\S+)`)

// provision asks for the machine to be installed and gives what the command printed once it has ended.
func (b *box) provision(done chan<- error) {
	path := b.s.path(b.name + "-user-data")
	if err := os.WriteFile(path, []byte(userData), 0o600); err != nil {
		b.s.Fatal(err)
	}
	go func() {
		_, err := b.s.try("provision", b.name, "--template", "debian", "--machine", b.name, "--hostname", "host-"+b.name, "--user-data", path)
		done <- err
	}()
}

// mustComeUp waits for the provision's end and checks what cloud-init made of the system.
func (b *box) mustComeUp(done <-chan error) {
	b.s.Helper()
	select {
	case err := <-done:
		if err != nil {
			b.s.Fatal(err)
		}
	case <-time.After(25 * time.Minute):
		b.s.Fatal("the provision has not ended")
	}
	found, err := b.Console.Expect(b.s.ctx, firstBoot)
	if err != nil {
		b.s.Fatalf("the installed system said nothing: %v", err)
	}
	if found[1] != "host-"+b.name || found[2] == "" || found[3] != "1" || !strings.HasPrefix(found[4], "10.77.0.") || !strings.HasPrefix(found[5], "/dev/vda") {
		b.s.Errorf("the installed system says %q", found[0])
	}
	if state := b.s.trivet("get", "machines", b.name, "-o", "yaml"); !strings.Contains(state, "state: active") {
		b.s.Errorf("the machine is not active:\n%s", state)
	}
}

// mustRunOnce checks the ledger: no action began again after it was done.
func (b *box) mustRunOnce() {
	b.s.Helper()
	var done []string
	for _, line := range b.ledger() {
		action, state, _ := strings.Cut(line, " ")
		if state == "done" {
			if slices.Contains(done, action) {
				b.s.Errorf("%s was done twice: %v", action, b.ledger())
			}
			done = append(done, action)
		}
	}
	if want := []string{"wipe", "image", "seed", "reboot"}; !slices.Equal(done, want) {
		b.s.Errorf("done %v, want %v", done, want)
	}
}

// imageIsBeingWritten waits until the image action is at work.
func (b *box) imageIsBeingWritten() {
	b.s.Helper()
	b.s.waitFor("the image is being written", 15*time.Minute, func() bool {
		out, err := b.s.try("get", "workflows", b.name+"-1", "-o", "json")
		return err == nil && regexp.MustCompile(`"name": *"image",\s*"state": *"running"`).MatchString(out)
	})
}

// A head that is killed during the image write does not stop it.
func TestBIOSInstallWithHeadKilled(t *testing.T) {
	s := newSite(t, "e2e-bios")
	b := s.newBox("bios1", "52:54:00:77:00:01", vm.BIOS)
	done := make(chan error, 1)
	b.provision(done)
	b.powerOn()
	b.imageIsBeingWritten()
	s.killHead()
	s.startHead()
	b.mustComeUp(done)
	b.mustRunOnce()
	if why := s.trivet("why", "bios1"); !strings.Contains(why, "image") || !strings.Contains(why, "first-boot") {
		t.Errorf("trivet why leaves something out:\n%s", why)
	}
}

// A machine that is reset during the image write netboots again and finishes; what was acknowledged is not done again.
func TestUEFIPXEInstallWithMachineReset(t *testing.T) {
	s := newSite(t, "e2e-uefi")
	b := s.newBox("uefi1", "52:54:00:77:00:02", vm.UEFIPXE)
	done := make(chan error, 1)
	b.provision(done)
	b.powerOn()
	b.imageIsBeingWritten()
	if err := b.Reset(s.ctx); err != nil {
		t.Fatal(err)
	}
	b.mustComeUp(done)
	b.mustRunOnce()
	if why := s.trivet("why", "uefi1"); !strings.Contains(why, "AgentLost") && !strings.Contains(why, "reset in the middle") {
		t.Errorf("trivet why does not tell of the reset:\n%s", why)
	}
}

// An installer that boots by a stale script on an active machine leaves its disk alone.
func TestUEFIHTTPInstallAndStaleScript(t *testing.T) {
	s := newSite(t, "e2e-http")
	b := s.newBox("http1", "52:54:00:77:00:03", vm.UEFIHTTP)
	done := make(chan error, 1)
	b.provision(done)
	b.powerOn()
	var stale string
	s.waitFor("a boot script of the install", 10*time.Minute, func() bool {
		out, err := s.command(s.ctx, "curl", "-sf", "http://"+headAddress+":7481/boot/script/52-54-00-77-00-03").Output()
		stale = string(out)
		return err == nil && strings.Contains(stale, "trivet.token=")
	})
	b.mustComeUp(done)
	b.mustRunOnce()
	b.PowerOff()
	before := len(b.ledger())
	s.bootStale(b, stale)
	if after := len(b.ledger()); after != before {
		t.Errorf("the installer did something: %v", b.ledger()[before:])
	}
	b.powerOn()
	if _, err := b.Console.Expect(s.ctx, regexp.MustCompile(`host-http1 login:`)); err != nil {
		t.Errorf("the installed system does not boot any more: %v", err)
	}
}

// bootStale boots the machine's disks with the kernel arguments of an old boot script, and waits until the agent has been
// told that there is nothing for it.
func (s *site) bootStale(b *box, script string) {
	s.Helper()
	args := regexp.MustCompile(`(?m)^boot vmlinuz (.*) \|\|$`).FindStringSubmatch(script)
	if args == nil {
		s.Fatalf("no kernel arguments in the script:\n%s", script)
	}
	platform, _ := prepared(s.T, s.binary)
	cfg := b.Config
	cfg.Name, cfg.Dir = b.name+"-stale", s.path(b.name+"-stale")
	cfg.Kernel, cfg.Initrd, cfg.Append = platform+"/vmlinuz", platform+"/initrd.img", args[1]
	m, err := vm.NewMachine(s.ctx, s.net, cfg)
	if err != nil {
		s.Fatal(err)
	}
	defer m.Close()
	if err := m.PowerOn(s.ctx); err != nil {
		s.Fatal(err)
	}
	if _, err := m.Console.Expect(s.ctx, regexp.MustCompile(`hello was refused|told to boot the local disk`)); err != nil {
		s.Fatalf("the stale installer: %v", err)
	}
}
