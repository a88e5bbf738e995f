package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trivet-project/trivet/internal/agent/installer/journal"
	"github.com/trivet-project/trivet/internal/lab/vm"
	"github.com/trivet-project/trivet/test/e2e/debimage"
)

// site is a head, as the real program in a network namespace, with a rack of QEMU machines beside it.
type site struct {
	*testing.T
	ctx    context.Context
	net    *vm.Network // the switch; its host has the operator, and the head where there is but one
	dir    string
	binary string
	head   *head // the first
}

// headAddress is the head's on the machines' network.
const headAddress = "10.77.0.1"

// newSite starts a head and gives it all that an operator would: network, platform, image, template.
func newSite(t *testing.T, name string) *site {
	t.Helper()
	s := newBareSite(t, name, headAddress, "--dhcp", "lab0")
	s.learnDebian()
	return s
}

// learnDebian gives the site what a machine is installed by, besides its platform.
func (s *site) learnDebian() {
	s.Helper()
	s.trivet("image", "import", preparedDebian(s.T).Zstd, "--name", "debian-12")
	s.apply(networkYAML)
	s.trivet("apply", "-f", "../../docs/examples/debian.yaml")
}

// newBareSite starts a head with these flags that knows only what machines netboot.
func newBareSite(t *testing.T, name, address string, how ...string) *site {
	t.Helper()
	s := newRack(t, name, address)
	s.head = s.newHead("data", address, s.net, how...)
	s.startFirst()
	s.learnPlatform()
	return s
}

// startFirst starts the first head for the first time. Its administrator comes after it takes writes.
func (s *site) startFirst() {
	s.Helper()
	s.head.mustStart()
	s.waitFor("there is an administrator", time.Minute, func() bool {
		_, err := s.try("get", "heads")
		return err == nil
	})
}

// newRack is a switch, and nothing on it but a host with the address.
func newRack(t *testing.T, name, address string) *site {
	t.Helper()
	s := &site{T: t, ctx: t.Context(), dir: t.TempDir(), binary: binary(t)}
	s.net = s.network(name, address)
	return s
}

// learnPlatform gives the site the installer OS.
func (s *site) learnPlatform() {
	s.Helper()
	s.trivet("platform", "import", preparedPlatform(s.T), "--name", "debian", "--default",
		"--arg", "console=ttyS0,115200", "--arg", "panic=20")
}

// network is a switch with a host that has the address, until the test's end.
func (s *site) network(name, address string) *vm.Network {
	s.Helper()
	n, err := vm.NewNetwork(s.ctx, name, netip.MustParsePrefix(address+"/24"))
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = n.Close() })
	return n
}

// binary is the program under test.
func binary(t *testing.T) string {
	t.Helper()
	path := os.Getenv("TRIVET")
	if path == "" {
		t.Fatal("TRIVET is not set: run make e2e, or TRIVET=$PWD/bin/trivet go test ./test/e2e")
	}
	if os.Geteuid() != 0 {
		t.Fatal("network namespaces need root: sudo make e2e")
	}
	return path
}

// command is a program in the machines' network. ip replaces itself by it, so that a kill reaches it.
func (s *site) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", s.net.Name(), program}, args...)...)
}

func (s *site) path(name string) string { return filepath.Join(s.dir, name) }

// try runs an operator's command on the switch's host.
func (s *site) try(args ...string) (string, error) {
	cmd := s.command(s.ctx, s.binary, args...)
	cmd.Env = append(os.Environ(), "TRIVET_CONFIG="+s.path("data/admin.yaml"))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("trivet %s: %w\n%s", strings.Join(args, " "), err, out.String())
	}
	return out.String(), err
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

// prepareLimit bounds what is made before the tests.
const prepareLimit = 15 * time.Minute

// preparedDebian is what machines are installed with. It is made once for all tests.
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

// preparedPlatform is a folder with the installer OS, made once for all tests.
func preparedPlatform(t *testing.T) string {
	t.Helper()
	platformOnce.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), prepareLimit)
		defer cancel()
		if platformDir, errPlatform = os.MkdirTemp("", "trivet-e2e-platform-"); errPlatform != nil {
			return
		}
		cmd := exec.CommandContext(ctx, binary(t), "platform", "build", "--kernel", "linux-image-cloud-amd64", "--out", platformDir)
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

// newBox plugs in a machine that the head knows.
func (s *site) newBox(name, mac string, firmware vm.Firmware) *box {
	s.Helper()
	b := s.plugIn(name, mac, firmware)
	b.introduce()
	return b
}

// introduce makes the machine's record.
func (b *box) introduce() {
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

// plugInto plugs a machine into a network's switch, by a cable or directly.
func (s *site) plugInto(n *vm.Network, cable *os.File, name, mac string, firmware vm.Firmware) *box {
	s.Helper()
	hw, err := net.ParseMAC(mac)
	if err != nil {
		s.Fatal(err)
	}
	m, err := vm.NewMachine(s.ctx, n, vm.Config{
		Name: name, MAC: hw, Firmware: firmware, Dir: s.path(name), MemoryMB: 1024, Serial: "SN-" + name, Frames: cable,
		Disks: []vm.Disk{{Path: s.path(name + ".disk"), SizeMB: 4096}, {Path: s.path(name + ".journal"), SizeMB: 4}},
	})
	if err != nil {
		s.Fatal(err)
	}
	b := &box{Machine: m, s: s, name: name}
	s.Cleanup(func() { _ = m.Close() })
	s.Cleanup(b.tell)
	return b
}

// tell shows the machine's console and its story when the test failed.
func (b *box) tell() {
	if !b.s.Failed() {
		return
	}
	text, _ := os.ReadFile(filepath.Join(b.Dir, "serial.log"))
	b.s.Logf("%s's console:\n%s", b.name, tail(text, 6000))
	ctx := b.s.ctx
	b.s.ctx = context.Background()
	why, _ := b.s.try("why", b.name)
	b.s.ctx = ctx
	b.s.Logf("trivet why %s:\n%s", b.name, why)
}

func (b *box) powerOn() {
	b.s.Helper()
	if err := b.PowerOn(b.s.ctx); err != nil {
		b.s.Fatal(err)
	}
}

// ledger is what the agent began and ended in this machine, by its own journal disk: "image.1 running", "image.1 done".
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

// waitFor looks at the site until it is so.
func (s *site) waitFor(what string, limit time.Duration, so func() bool) {
	s.Helper()
	for deadline := time.Now().Add(limit); !so(); time.Sleep(300 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.Fatalf("waited %s for: %s", limit, what)
		}
		if err := s.ctx.Err(); err != nil {
			s.Fatal(errors.Join(errors.New(what), err))
		}
	}
}

func tail(text []byte, n int) []byte { return text[max(0, len(text)-n):] }
