// Package e2e_test installs real machines: QEMU with real firmware netboots from a real head, is installed by a
// workflow, and comes up from its own disk with what real cloud-init made of its seed.
package e2e_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet/internal/lab/vm"
)

// userData gives the system a user of its own, beside the distribution's default user.
const userData = `#cloud-config
users:
- default
- name: alice
  shell: /bin/bash
  ssh_authorized_keys: [%q]
`

// provision requests the installation of the machine. The command ends when the system is up, or has failed.
func (b *box) provision() (done <-chan error) {
	b.s.Helper()
	b.s.writeUserData()
	return b.try(b.request()...)
}

// request is the command that requests the installation of the machine.
func (b *box) request() []string {
	return []string{"provision", b.name, "--template", "debian", "--machine", b.name, "--hostname", "host-" + b.name,
		"--user-data", b.s.path("user-data"), "--ssh-key", b.s.path("key.pub")}
}

// try begins an operator command, and returns its end.
func (b *box) try(args ...string) (done <-chan error) {
	end := make(chan error, 1)
	go func() {
		_, err := b.s.try(args...)
		end <- err
	}()
	return end
}

// writeUserData creates the user's SSH key and the user data.
func (s *site) writeUserData() {
	s.Helper()
	keygen := s.command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", s.path("key"))
	if _, err := keygen.Output(); err != nil {
		s.Fatalf("%v; try apt-get install openssh-client", err)
	}
	public, err := os.ReadFile(s.path("key.pub"))
	if err != nil {
		s.Fatal(err)
	}
	text := fmt.Sprintf(userData, strings.TrimSpace(string(public)))
	if err := os.WriteFile(s.path("user-data"), []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
}

// mustComeUp waits for the provision's end and checks what cloud-init made of the system, as its users see it.
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
	address := b.s.trivet("get", "addresses", "--field", "spec.machine="+b.name, "-o", "name")
	address = strings.TrimPrefix(strings.TrimSpace(address), "address/")
	for _, user := range []string{"alice", "debian"} {
		want := []string{user, "host-" + b.name, address + "/24", "/dev/vda3"}
		if got := b.login(user, address); !slices.Equal(got, want) {
			b.s.Errorf("the installed system prints %q, want %q", got, want)
		}
	}
	if state := b.s.trivet("get", "machines", b.name, "-o", "yaml"); !strings.Contains(state, "state: active") {
		b.s.Errorf("the machine is not active:\n%s", state)
	}
}

// login inspects the installed system as one of its users: name, host name, address, root file system.
func (b *box) login(user, address string) []string {
	b.s.Helper()
	return strings.Fields(b.run(user, address,
		"id -un; hostname; ip -4 -o addr show scope global | awk '{print $4}'; findmnt -no SOURCE /"))
}

// run runs a command in the installed system as one of its users.
func (b *box) run(user, address, command string) string {
	b.s.Helper()
	out, err := b.s.command("ssh", "-i", b.s.path("key"), "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no",
		"-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-o", "ConnectTimeout=60", user+"@"+address,
		command).CombinedOutput()
	if err != nil {
		b.s.Errorf("ssh %s@%s: %v: %s", user, address, err, out)
	}
	return string(out)
}

// mustPrint waits for text on the console.
func (b *box) mustPrint(re string) {
	b.s.Helper()
	ctx, cancel := context.WithTimeout(b.s.Context(), 5*time.Minute)
	defer cancel()
	if _, err := b.Console.Expect(ctx, regexp.MustCompile(re)); err != nil {
		b.s.Fatal(err)
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

// imageIsBeingWritten waits until the image action of a run is running.
func (s *site) imageIsBeingWritten(run string) {
	s.Helper()
	s.waitFor("the image is being written", 15*time.Minute, func() bool {
		out, err := s.output("get", "workflows", run, "-o", "json")
		return err == nil && regexp.MustCompile(`"name": *"image",\s*"state": *"running"`).MatchString(out)
	})
}

// A machine that is reset during the image write netboots again and finishes; what was acknowledged is not done
// again. An installer that boots by a stale script on the active machine leaves its disk alone.
func TestUEFIPXEInstallWithReset(t *testing.T) {
	t.Parallel()
	s := newSite(t, "e2e-uefi")
	b := s.newBox("uefi1", "52:54:00:77:00:02", vm.UEFIPXE)
	done := b.provision()
	b.powerOn()
	stale := b.awaitScript()
	b.s.imageIsBeingWritten(b.name + "-1")
	if err := b.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.mustComeUp(done)
	b.mustRunOnce()
	if why := s.trivet("why", "uefi1"); !strings.Contains(why, "AgentLost") &&
		!strings.Contains(why, "reset in the middle") {
		t.Errorf("trivet why does not show the reset:\n%s", why)
	}
	b.mustIgnore(stale)
}

// The same by UEFI HTTP boot, without a reset.
func TestSoakUEFIHTTPInstall(t *testing.T) {
	soak(t)
	t.Parallel()
	s := newSite(t, "e2e-http")
	b := s.newBox("http1", "52:54:00:77:00:03", vm.UEFIHTTP)
	done := b.provision()
	b.powerOn()
	stale := b.awaitScript()
	b.mustComeUp(done)
	b.mustRunOnce()
	b.mustIgnore(stale)
}

// A head that is killed during the image write does not stop it. TestREADME does the same with a BMC.
func TestSoakBIOSInstallWithHeadKilled(t *testing.T) {
	soak(t)
	t.Parallel()
	s := newSite(t, "e2e-bios")
	b := s.newBox("bios1", "52:54:00:77:00:01", vm.BIOS)
	done := b.provision()
	b.powerOn()
	b.s.imageIsBeingWritten(b.name + "-1")
	s.head.kill()
	s.head.mustStart()
	b.mustComeUp(done)
	b.mustRunOnce()
	if why := s.trivet("why", "bios1"); !strings.Contains(why, "image") || !strings.Contains(why, "first-boot") {
		t.Errorf("trivet why omits a step:\n%s", why)
	}
}

// soak skips a test that is run by make soak only.
func soak(t *testing.T) {
	t.Helper()
	if os.Getenv("TRIVET_SOAK") == "" {
		t.Skip("runs in make soak")
	}
}

// awaitScript waits for the boot script of the machine's install and returns it.
func (b *box) awaitScript() (script string) {
	b.s.Helper()
	b.s.waitFor("a boot script of the install", 10*time.Minute, func() bool {
		script = ""
		if a := b.address(); a != "" {
			script = b.s.scriptFor(b.MAC.String(), a, headAddress)
		}
		return strings.Contains(script, "trivet.token=")
	})
	return script
}

// address returns the address that the machine has; empty if it has none yet.
func (b *box) address() string {
	out, err := b.s.try("get", "addresses", "--field", "spec.machine="+b.name, "-o", "name")
	if err != nil {
		return ""
	}
	return strings.TrimPrefix(strings.TrimSpace(out), "address/")
}

// scriptFor returns the boot script that a head has for the holder of an address, whose place this host takes for a
// moment.
func (s *site) scriptFor(mac, address, head string) string {
	s.Helper()
	own := []string{address + "/32", "dev", "lo"}
	_ = s.command("ip", append([]string{"address", "replace"}, own...)...).Run()
	defer func() { _ = s.command("ip", append([]string{"address", "delete"}, own...)...).Run() }()
	out, err := s.command("curl", "-sf", "--interface", address,
		"http://"+head+":7481/boot/script/"+mac).CombinedOutput()
	if err != nil {
		s.Logf("boot script of %s for %s: %v: %s", mac, address, err, out)
	}
	return string(out)
}

// mustIgnore boots the installer on the active machine by a stale script, wants nothing done, and the system up again.
func (b *box) mustIgnore(stale string) {
	b.s.Helper()
	b.PowerOff()
	before := len(b.ledger())
	b.s.bootStale(b, stale)
	if after := len(b.ledger()); after != before {
		b.s.Errorf("the installer has done: %v", b.ledger()[before:])
	}
	b.powerOn()
	b.mustPrint(`host-` + b.name + ` login:`)
}

// bootStale boots the machine's disks with the kernel arguments of an old boot script, and waits until the agent has
// been refused, or sent to its local disk.
func (s *site) bootStale(b *box, script string) {
	s.Helper()
	args := regexp.MustCompile(`(?m)^boot vmlinuz (.*) \|\|$`).FindStringSubmatch(script)
	if args == nil {
		s.Fatalf("no kernel arguments in the script:\n%s", script)
	}
	platform := preparedPlatform(s.T)
	cfg := b.Config
	cfg.Name, cfg.Dir = b.name+"-stale", s.path(b.name+"-stale")
	cfg.Kernel, cfg.Initrd, cfg.Append = platform+"/vmlinuz", platform+"/initrd.img", args[1]
	m, err := vm.NewMachine(s.Context(), s.net, cfg)
	if err != nil {
		s.Fatal(err)
	}
	defer m.Close()
	old := &box{Machine: m, s: s, name: cfg.Name}
	old.powerOn()
	old.mustPrint(`hello was refused|ordered to boot the local disk`)
}
