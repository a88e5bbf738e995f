package e2e_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/trivet-project/trivet/internal/agent/installer/journal"
	"github.com/trivet-project/trivet/internal/lab/vm"
	"github.com/trivet-project/trivet/internal/testhead"
	"github.com/trivet-project/trivet/test/e2e/debimage"
)

// site is a head, as the real program in a network namespace, with a rack of QEMU machines beside it.
type site struct {
	*testing.T
	net       *vm.Network // the switch; its host has the operator, BMCs, and the head where there is only one
	address   string      // of the switch's host
	dir       string
	binary    string
	head      *head  // the first
	endpoints string // the heads that operator commands use; empty: those of the credential
	admin     string // file of the operator's credential; empty: that of the first head
}

// headAddress is the head's on the machines' network.
const headAddress = "10.77.0.1"

// newSite starts a head and creates all that an operator would: network, platform, image, template.
func newSite(t *testing.T, name string) *site {
	t.Helper()
	s := newBareSite(t, name, headAddress, "--dhcp", "lab0")
	s.importDebian()
	return s
}

// importDebian creates what a machine is installed with, besides its platform.
func (s *site) importDebian() {
	s.Helper()
	s.trivet("image", "import", preparedDebian(s.T).Zstd, "--name", "debian-12")
	s.apply(networkYAML)
	s.trivet("apply", "-f", "../../docs/examples/debian.yaml")
}

// newBareSite starts a head with these flags that has only a platform.
func newBareSite(t *testing.T, name, address string, flags ...string) *site {
	t.Helper()
	s := newRack(t, name, address)
	s.head = s.newHead("data", address, s.net, flags...)
	s.startFirst()
	s.importPlatform()
	return s
}

// startFirst starts the first head for the first time. Its administrator is created after it accepts writes.
func (s *site) startFirst() {
	s.Helper()
	s.head.mustStart()
	s.waitFor("the administrator exists", time.Minute, func() bool {
		_, err := s.try("get", "heads")
		return err == nil
	})
}

// newRack returns a site of a switch and a host with the address.
func newRack(t *testing.T, name, address string) *site {
	t.Helper()
	testhead.RequireRoot(t)
	s := &site{T: t, address: address, dir: t.TempDir(), binary: testhead.Program(t)}
	s.net = s.network(name, address)
	return s
}

// importPlatform imports the installer OS.
func (s *site) importPlatform() {
	s.Helper()
	s.trivet("platform", "import", preparedPlatform(s.T), "--name", "debian", "--default",
		"--arg", "console=ttyS0,115200", "--arg", "panic=20")
}

// network creates a switch with a host that has the address, until the end of the test.
func (s *site) network(name, address string) *vm.Network {
	s.Helper()
	n, err := vm.NewNetwork(s.Context(), name, netip.MustParsePrefix(address+"/24"))
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = n.Close() })
	return n
}

// command returns a command in the machines' network.
func (s *site) command(program string, args ...string) *exec.Cmd {
	return testhead.Command(s.net.Name(), program, args...)
}

func (s *site) path(name string) string { return filepath.Join(s.dir, name) }

// try runs an operator command on the switch's host.
func (s *site) try(args ...string) (string, error) { return s.tryContext(s.Context(), args...) }

func (s *site) tryContext(ctx context.Context, args ...string) (string, error) {
	r, err := s.call(ctx, args...)
	return r.All, err
}

// output returns the standard output of a command, without warnings.
func (s *site) output(args ...string) (string, error) {
	r, err := s.call(s.Context(), args...)
	return r.Stdout, err
}

func (s *site) call(ctx context.Context, args ...string) (testhead.Result, error) {
	cmd := s.command(s.binary, args...)
	if s.endpoints != "" {
		cmd.Env = append(os.Environ(), "TRIVET_ENDPOINTS="+s.endpoints)
	}
	return testhead.CLI(ctx, cmd, cmp.Or(s.admin, testhead.AdminFile(s.path("data"))))
}

func (s *site) trivet(args ...string) string {
	s.Helper()
	out, err := s.try(args...)
	if err != nil {
		s.Fatal(err)
	}
	return out
}

func (s *site) apply(yaml string) {
	s.Helper()
	path := s.path("apply.yaml")
	if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
		s.Fatal(err)
	}
	s.trivet("apply", "-f", path)
}

const networkYAML = `
kind: Network
name: rack
spec:
  cidr: 10.77.0.0/24
  ranges: [{from: 10.77.0.100, to: 10.77.0.199}]
`

var (
	debianOnce, platformOnce sync.Once
	debian                   debimage.Image
	platformDir              string
	errDebian, errPlatform   error
)

// prepareLimit bounds what is built before the tests.
const prepareLimit = 15 * time.Minute

// preparedDebian returns the image that machines are installed with. It is built once for all tests.
func preparedDebian(t *testing.T) debimage.Image {
	t.Helper()
	debianOnce.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), prepareLimit)
		defer cancel()
		debian, errDebian = debimage.Build(ctx, func(line string) { t.Log(line) })
	})
	if errDebian != nil {
		t.Fatal(errDebian)
	}
	return debian
}

// preparedPlatform returns a directory with the installer OS, which is built once for all tests.
func preparedPlatform(t *testing.T) string {
	t.Helper()
	platformOnce.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), prepareLimit)
		defer cancel()
		if platformDir, errPlatform = os.MkdirTemp("", "trivet-e2e-platform-"); errPlatform != nil {
			return
		}
		cmd := exec.CommandContext(ctx, testhead.Program(t), "platform", "build", "--kernel",
			"linux-image-cloud-amd64", "--out", platformDir)
		if out, err := cmd.CombinedOutput(); err != nil {
			errPlatform = fmt.Errorf("platform build: %w\n%s", err, out)
		}
	})
	if errPlatform != nil {
		t.Fatal(errPlatform)
	}
	return platformDir
}

// TestMain removes the installer OS at the end; the Debian image stays in its cache.
func TestMain(m *testing.M) {
	code := m.Run()
	if platformDir != "" {
		_ = os.RemoveAll(platformDir)
	}
	os.Exit(code)
}

// box is one QEMU machine: an empty disk to install on, and a small one for the agent's journal.
type box struct {
	*vm.Machine
	s    *site
	name string
}

// newBox plugs in a machine that has a record.
func (s *site) newBox(name, mac string, firmware vm.Firmware) *box {
	s.Helper()
	b := s.plugIn(name, mac, firmware)
	b.createRecord()
	return b
}

// createRecord creates the machine's record.
func (b *box) createRecord() {
	b.s.Helper()
	b.s.apply(fmt.Sprintf(machineYAML, b.name, b.MAC))
}

const machineYAML = `
kind: Machine
name: %s
labels: {rack: r1}
spec:
  arch: amd64
  disk: {path: /dev/vda}
  journal: /dev/vdb
  nics: [{mac: "%s"}]
`

// plugIn plugs in a machine.
func (s *site) plugIn(name, mac string, firmware vm.Firmware) *box {
	s.Helper()
	return s.plugInto(s.net, nil, name, mac, firmware)
}

// plugInto plugs a machine into a network's switch, through a cable or directly.
func (s *site) plugInto(n *vm.Network, cable *os.File, name, mac string, firmware vm.Firmware) *box {
	s.Helper()
	return s.plug(n, vm.Config{Name: name, Firmware: firmware, Frames: cable}, mac, 0)
}

// plug plugs in a machine, writes to whose disk fail at an offset; 0: none does.
func (s *site) plug(n *vm.Network, c vm.Config, mac string, failAt int64) *box {
	s.Helper()
	var err error
	if c.MAC, err = net.ParseMAC(mac); err != nil {
		s.Fatal(err)
	}
	name := c.Name
	c.Dir, c.MemoryMB, c.Serial = s.path(name), 1024, "SN-"+name
	c.Disks = []vm.Disk{{Path: s.path(name + ".disk"), SizeMB: 4096, FailAt: failAt},
		{Path: s.path(name + ".journal"), SizeMB: 4}}
	m, err := vm.NewMachine(s.Context(), n, c)
	if err != nil {
		s.Fatal(err)
	}
	b := &box{Machine: m, s: s, name: name}
	s.Cleanup(func() { _ = m.Close() })
	s.Cleanup(b.printLog)
	return b
}

// printLog prints the machine's console and history when the test failed.
func (b *box) printLog() {
	if !b.s.Failed() {
		return
	}
	text, _ := os.ReadFile(filepath.Join(b.Dir, "serial.log"))
	b.s.Logf("console of %s:\n%s", b.name, tail(text, 6000))
	why, _ := b.s.tryContext(context.Background(), "why", b.name)
	b.s.Logf("trivet why %s:\n%s", b.name, why)
}

func (b *box) powerOn() {
	b.s.Helper()
	if err := b.PowerOn(b.s.Context()); err != nil {
		b.s.Fatal(err)
	}
}

// ledger returns what the agent began and ended in this machine, by its own journal disk: "image.1 running", "image.1
// done".
func (b *box) ledger() (lines []string) {
	b.s.Helper()
	entries, err := journal.Read(b.s.path(b.name + ".journal"))
	if err != nil {
		b.s.Fatal(err)
	}
	for _, e := range entries {
		if e.Report != nil {
			lines = append(lines, fmt.Sprintf("%s %s", e.Report.Action, e.Report.State))
		}
	}
	return lines
}

// waitFor waits until a condition is true.
func (s *site) waitFor(what string, limit time.Duration, so func() bool) {
	s.Helper()
	for deadline := time.Now().Add(limit); !so(); time.Sleep(300 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.Fatalf("waited %s for: %s", limit, what)
		}
		if err := s.Context().Err(); err != nil {
			s.Fatal(errors.Join(errors.New(what), err))
		}
	}
}

func tail(text []byte, n int) []byte { return text[max(0, len(text)-n):] }
