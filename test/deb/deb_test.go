// Package deb_test installs the Debian package in clean systems with systemd, and runs heads from it.
package deb_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/testhead"
)

// capabilities are what the service has of root's: CAP_NET_BIND_SERVICE, CAP_NET_ADMIN and CAP_NET_RAW.
const capabilities = 1<<10 | 1<<12 | 1<<13

// shared is the virtual address of the heads.
const shared = "10.98.0.9"

// The package is installed in three clean systems, which become one cluster by their configuration files: first one
// head, then three. A killed head is started again, an upgrade restarts one, and a removal leaves its data only.
func TestPackage(t *testing.T) {
	testhead.RequireRoot(t)
	srv := t.TempDir()
	first := buildTwice(t, srv, "v0.3.1-test1")
	second := build(t, srv, "v0.3.1-test2", "export SOURCE_DATE_EPOCH=1900000000")
	root := cleanRoot(t)
	var heads []*container
	for i, namespace := range network(t, 3) {
		c := boot(t, root, namespace, fmt.Sprintf("10.98.0.%d", i+1), srv)
		heads = append(heads, c)
	}

	one := heads[0]
	one.install(first)
	one.checkInstalled()
	one.start("")
	one.checkService()
	one.checkServes()

	for _, c := range heads[1:] {
		c.install(first)
		c.start(fmt.Sprintf("join: ['https://%s:7480']\ntoken: %s\n", one.address, one.token()))
		one.awaitHeads(c.address)
	}
	one.checkRestart()
	for _, c := range heads {
		c.checkServes()
	}
	one.checkNewProgram()
	heads[1].checkUpgrade(second)
	for _, c := range heads { // each was stopped in order
		c.is("no", "journalctl --unit trivet --output cat | grep --quiet 'goroutine profile' || echo no")
	}
	heads[2].checkRemoval()
}

// build builds the package of a version in an environment of the shell, and returns its name.
func build(t *testing.T, dir, version, environment string) (name string) {
	t.Helper()
	cmd := exec.Command("sh", "-c", environment+`; exec ../../packaging/deb/build "$@"`, "sh", testhead.Program(t), version,
		runtime.GOARCH, dir)
	cmd.Env = append(os.Environ(), "DEB_COMPRESSION=none")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v: %s", cmd, err, stderr(err))
	}
	name = filepath.Base(strings.TrimSpace(string(out)))
	if want := "trivet_" + strings.Replace(version[1:], "-", "~", 1) + "_" + runtime.GOARCH + ".deb"; name != want {
		t.Errorf("the package is %s, want %s", name, want)
	}
	return name
}

// buildTwice builds the package of a version. The same commit results in the same bytes, whatever the environment.
func buildTwice(t *testing.T, dir, version string) (name string) {
	t.Helper()
	var builds [2][]byte
	for i, environment := range []string{"umask 022; export TZ=UTC", "umask 077; export TZ=Asia/Tokyo"} {
		name = build(t, dir, version, environment)
		var err error
		if builds[i], err = os.ReadFile(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(builds[0], builds[1]) {
		t.Errorf("two builds of %s differ", name)
	}
	return name
}

// network returns namespaces on one Ethernet segment: 10.98.0.1 and so on, on boot0.
func network(t *testing.T, n int) (namespaces []string) {
	t.Helper()
	ip := func(line string, args ...any) {
		t.Helper()
		line = fmt.Sprintf(line, args...)
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", line, err, out)
		}
	}
	namespace := func(name string) string {
		name = fmt.Sprintf("deb-%d-%s", os.Getpid(), name)
		ip("netns add %s", name)
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
		ip("-n %s link set lo up", name)
		return name
	}
	bridge := namespace("bridge")
	ip("-n %s link add bridge up type bridge", bridge)
	for i := range n {
		c := namespace(fmt.Sprint(i))
		ip("-n %s link add boot0 type veth peer name port%d netns %s", c, i, bridge)
		ip("-n %s addr add 10.98.0.%d/24 dev boot0", c, i+1)
		ip("-n %s link set boot0 up", c)
		ip("-n %s link set port%d master bridge up", bridge, i)
		namespaces = append(namespaces, c)
	}
	return namespaces
}

func (c *container) install(name string) { c.must("dpkg", "--install", "/srv/"+name) }

// checkInstalled checks the system after the installation: nothing runs yet.
func (c *container) checkInstalled() {
	c.is("disabled", "systemctl is-enabled trivet")
	c.is("inactive", "systemctl is-active trivet")
	c.is("640 root trivet", "stat -c '%a %U %G' /etc/trivet/config.yaml")
	c.is("trivet:/usr/sbin/nologin", "getent passwd trivet | cut -d: -f1,7")
	c.is("", "systemd-analyze --man=no verify trivet.service 2>&1")
	c.is("", "dpkg --verify trivet")
	c.is("trivet-server - Run a head", "zcat /usr/share/man/man1/trivet-server.1.gz | sed -n '/SH NAME/{n;p}'")
	c.is("trivet 0.3.1~test1", "dpkg-query --show trivet | tr '\\t' ' '")
	c.must("systemd-analyze", "security", "--threshold=20", "trivet") // 2.0 of 10
	for _, file := range []string{"bash-completion/completions/trivet", "zsh/vendor-completions/_trivet",
		"fish/vendor_completions.d/trivet.fish"} {
		c.must("grep", "--quiet", "__complete", "/usr/share/"+file)
	}
}

// start writes the configuration and starts the head. A mistake in it is in the journal, with its line.
func (c *container) start(more string) {
	c.Helper()
	c.configure("dhpc: [boot0]\n")
	c.must("systemctl", "enable", "--now", "trivet")
	c.awaitJournal(`/etc/trivet/config.yaml:1:1: there is no setting "dhpc"; did you mean dhcp?`)
	c.await("the login message", func() error {
		_, err := c.run("sh", "-c", `grep --quiet --fixed-strings 'there is no setting "dhpc"' /usr/lib/issue.d/trivet.issue`)
		return err
	})
	c.configure("dhcp: [boot0]\nvip: " + shared + "/24\naudit: syslog\n" + more)
	c.must("systemctl", "restart", "trivet")
	c.awaitJournal("msg=ready")
	c.is("no", "test -e /usr/lib/issue.d/trivet.issue || echo no")
}

// configure writes the configuration as an editor does: into the file that there is.
func (c *container) configure(text string) {
	c.Helper()
	c.must("sh", "-c", `printf %s "$1" >/etc/trivet/config.yaml`, "sh", text)
}

func (c *container) awaitJournal(text string) {
	c.Helper()
	c.await(text, func() error {
		_, err := c.run("sh", "-c", `journalctl --unit trivet --output cat | grep --quiet --fixed-strings "$1"`, "sh", text)
		return err
	})
}

// checkService checks the process of the service, and that its data is its own.
func (c *container) checkService() {
	c.is(fmt.Sprintf("CapInh:\t%016x\nCapPrm:\t%016x\nCapEff:\t%016x\nCapBnd:\t%016x\nCapAmb:\t%016x", capabilities,
		capabilities, capabilities, capabilities, capabilities), "grep Cap /proc/$(pidof trivet)/status")
	c.is("trivet", "stat -c %U /proc/$(pidof trivet)")
	c.is("700 trivet", "stat -c '%a %U' /var/lib/trivet")
	c.is("", "find /var/lib/trivet ! -user trivet")
}

// checkNewProgram replaces the program of all heads by command: it has the rights of the service, and is started again.
func (c *container) checkNewProgram() {
	c.Helper()
	c.must("sh", "-c", "cp /usr/bin/trivet /tmp/trivet && echo >>/tmp/trivet") // another program of the same version
	c.must("trivet", "upgrade", "run", "/tmp/trivet", "--yes", "--soak", "1s")
	c.is("3", "trivet upgrade status | grep -c ' new$'")
	c.checkService()
	c.checkServes()
	c.must("systemctl", "restart", "trivet")
	c.await("the new program", func() error {
		out, err := c.run("sh", "-c", "readlink /proc/$(pidof trivet)/exe")
		if err == nil && !strings.HasPrefix(out, "/var/lib/trivet/program/") {
			err = fmt.Errorf("%s runs", out)
		}
		return err
	})
}

// checkServes checks what needs the rights of the service: DHCP, TFTP and HTTP by a synthetic boot, power by a program,
// the audit log in the journal, and the virtual address.
func (c *container) checkServes() {
	c.Helper()
	c.must("sh", "-c", `printf '#!/bin/sh\nid -un >&2\necho off\n' >/etc/trivet/power/plug && chmod 755 /etc/trivet/power/plug`)
	c.must("sh", "-c", "trivet apply -f - <<END\n"+site+"END")
	c.await("a synthetic boot", func() error {
		out, _ := c.run("trivet", "status", "-o", "json") // it warns of what a small site lacks
		var r trivet.StatusReport
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			return err
		}
		holds := 0
		for _, i := range r.Invariants {
			if slices.Contains([]string{"dhcp", "tftp", "boot-http"}, i.Name) && i.State == trivet.InvariantHolds {
				holds++
			}
		}
		if holds != 3 {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	c.is("off bmc", "trivet power status m1 | awk '/^m1/ { print $2, $3 }'")
	c.must("sh", "-c", "journalctl --unit trivet SYSLOG_FACILITY=10 --output cat | grep --quiet '\"account\"'")
	c.await("the virtual address", func() error {
		_, err := c.run("env", "TRIVET_ENDPOINTS=https://"+shared+":7480", "trivet", "get", "networks")
		return err
	})
}

const site = `
{kind: Network, name: net0, spec: {cidr: 10.98.0.0/24, ranges: [{from: 10.98.0.100, to: 10.98.0.150}]}}
---
{kind: Secret, name: plugs, spec: {data: {user: u, password: p}, addresses: [10.98.0.0/24]}}
---
{kind: Machine, name: m1, spec: {nics: [{mac: '52:54:00:00:00:01'}],
  bmc: {protocol: exec, command: plug, address: 10.98.0.7, secret: plugs}}}
`

func (c *container) token() string {
	c.Helper()
	var v struct{ Token string }
	if err := json.Unmarshal([]byte(c.must("trivet", "head", "token", "-o", "json")), &v); err != nil {
		c.Fatal(err)
	}
	return v.Token
}

// awaitHeads waits until a head votes.
func (c *container) awaitHeads(address string) {
	c.Helper()
	c.await(address+" votes", func() error {
		out, err := c.run("sh", "-c", "trivet head list | grep voter | grep --fixed-strings "+address)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// checkRestart kills the head: systemd starts it again. What root has left in its directory is its own then.
func (c *container) checkRestart() {
	c.must("touch", "/var/lib/trivet/of-root")
	before := c.must("pidof", "trivet")
	c.must("systemctl", "kill", "--signal=KILL", "trivet")
	c.await("a restart", func() error {
		if after, err := c.run("pidof", "trivet"); err != nil || after == before {
			return fmt.Errorf("%s, %w", after, err)
		}
		_, err := c.run("trivet", "get", "machines")
		return err
	})
	c.is("1", "systemctl show --property NRestarts --value trivet")
	c.is("trivet", "stat -c %U /var/lib/trivet/of-root")
}

// checkUpgrade installs the next version: the head that runs is restarted with its configuration and data.
func (c *container) checkUpgrade(name string) {
	before, config := c.must("pidof", "trivet"), c.must("cat", "/etc/trivet/config.yaml")
	c.install(name)
	c.is("trivet 0.3.1~test2", "dpkg-query --show trivet | tr '\\t' ' '")
	c.is("enabled", "systemctl is-enabled trivet")
	c.is(config, "cat /etc/trivet/config.yaml")
	c.is("640 root trivet", "stat -c '%a %U %G' /etc/trivet/config.yaml")
	if after := c.must("pidof", "trivet"); after == before {
		c.Error("the head runs the program of before")
	}
	c.is("/usr/bin/trivet", "readlink /proc/$(pidof trivet)/exe") // what was installed last
	c.awaitHeads(c.address)
	c.checkServes()
}

// checkRemoval removes and purges the package. Its data, its user and what was added to its directory stay.
func (c *container) checkRemoval() {
	c.must("dpkg", "--remove", "trivet")
	c.is("", "pidof trivet")
	c.is("config.yaml\npower", "ls /etc/trivet")
	c.must("rm", "/etc/trivet/power/plug")
	c.must("dpkg", "--purge", "trivet")
	c.is("/var/lib/trivet", "find / -xdev -path /srv -prune -o -path '/var/lib/trivet/*' -prune -o -iname '*trivet*' -print")
	c.is("trivet", "stat -c %U /var/lib/trivet/store")
	c.is("0", "systemctl --quiet is-active trivet && echo 1 || echo 0")
}
