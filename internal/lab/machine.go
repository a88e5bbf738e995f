// Package lab simulates machines, and runs a whole site on one computer. Simulated machines use real DHCP and HTTP
// with real heads and run real workflows with the real agent; only the hardware is simulated: the firmware is a few
// lines of Go, a disk is a file, and its mounted file system is a directory. Heads do not import this package.
package lab

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/agent/action"
	"github.com/trivet-project/trivet/internal/agent/installer"
	"github.com/trivet-project/trivet/internal/agent/installer/journal"
	"github.com/trivet-project/trivet/internal/agent/installer/osinit"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/blob"
	"github.com/trivet-project/trivet/internal/dhcp"
	"github.com/trivet-project/trivet/internal/wait"
)

// Machine is one simulated machine.
type Machine struct {
	Name string
	MAC  string
	Dir  string   // its disks
	DHCP []string // DHCP addresses of the heads, in the order to try
	// Lease, if set, gets the machine's lease instead of a DHCP client on loopback. The host must have its address.
	Lease func(ctx context.Context) (*dhcp.Lease, error)
	// Installer, if set, runs as the installer OS instead of this version's agent. The machine restarts when it
	// returns.
	Installer func(ctx context.Context, args string) error
	Log       *slog.Logger
	// Wrap, if set, wraps what performs the agent's actions; for tests.
	Wrap func(Doer) Doer
	// Up is called when the installed system has started and phoned home.
	Up func()
	// Relay is the address of the DHCP relay of its network; the zero value is 127.0.0.1.
	Relay netip.Addr
	// broken is what is wrong with it; nil: nothing.
	broken *breakdown
}

// Doer performs one attempt of an action.
type Doer = func(context.Context, *action.Attempt) error

// DiskBytes is the size of a simulated disk. It is sparse.
const DiskBytes = 64 << 20

// JournalPath returns the path of the agent's journal, which is synced at every line and shows which actions ran.
func (m *Machine) JournalPath() string { return filepath.Join(m.Dir, m.Name+".journal") }

func (m *Machine) disk() string { return filepath.Join(m.Dir, m.Name+".disk") }

// Run keeps the machine powered on until ctx ends, and boots it again whenever it restarts.
func (m *Machine) Run(ctx context.Context) error {
	if err := m.makeDisks(); err != nil {
		return err
	}
	for ctx.Err() == nil {
		err := m.boot(ctx)
		if err != nil && ctx.Err() == nil {
			m.Log.Debug("boot failed; will retry", "machine", m.Name, "error", err)
			_ = wait.Sleep(ctx, time.Second)
		}
	}
	return nil
}

func (m *Machine) makeDisks() error {
	f, err := os.OpenFile(m.disk(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(DiskBytes), f.Close())
}

// boot boots the machine and returns when it restarts, or when ctx ends.
func (m *Machine) boot(ctx context.Context) error {
	if m.broken.halts(ctx, trivet.StepDHCP) {
		return nil
	}
	request := m.requestLease
	if m.Lease != nil {
		request = m.Lease
	}
	lease, err := request(ctx)
	if err != nil {
		return err
	}
	from := clientAt(lease.Address.Addr())
	defer from.CloseIdleConnections()
	if m.broken.halts(ctx, trivet.StepScript) {
		return nil
	}
	script, err := fetchScript(ctx, from, lease.BootFile)
	if err != nil {
		return err
	}
	switch script.kind {
	case bootDisk:
		return m.startSystem(ctx)
	case bootAgent:
		return m.startInstaller(ctx, from, script)
	}
	_ = wait.Sleep(ctx, time.Second) // as the script does
	return nil
}

// brokenKernel is how a kernel begins that does not start.
const brokenKernel = "broken"

// startInstaller fetches the installer OS and runs it.
func (m *Machine) startInstaller(ctx context.Context, from *http.Client, s script) error {
	if m.broken.halts(ctx, trivet.StepKernel) {
		return nil
	}
	starts := true
	for _, file := range s.files {
		content, err := fetchFile(ctx, from, file)
		if err != nil {
			return err
		}
		starts = starts && !bytes.HasPrefix(content, []byte(brokenKernel))
	}
	switch {
	case !starts:
		<-ctx.Done()
		return nil
	case m.broken.halts(ctx, trivet.StepHello):
		return nil
	case m.Installer != nil:
		return m.Installer(ctx, s.args)
	}
	return m.runAgent(ctx, osinit.ParseCmdline(s.args))
}

// runAgent runs the installer OS.
func (m *Machine) runAgent(ctx context.Context, args osinit.Cmdline) error {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	clock := &installer.Clock{}
	c, err := client.New(client.Config{Endpoints: args.List("trivet.url"), Trust: args["trivet.ca"],
		UserAgent: "trivet-lab"})
	if err != nil {
		return err
	}
	defer c.Close()
	j, err := journal.Open(m.JournalPath())
	if err != nil {
		return err
	}
	defer j.Close()
	work := &action.Env{
		Host: action.Files{Paths: map[string]string{"/dev/vda": m.disk()}}, Dir: m.Dir, Firmware: "bios",
		Fetch: (&blob.Fetcher{}).Fetch, TestMemory: 1 << 20,
	}
	do := work.Do
	if m.Wrap != nil {
		do = m.Wrap(do)
	}
	power := ctx // until it is off
	ctx, freeze := context.WithCancel(power)
	defer freeze()
	do = m.broken.wrap(m, do, freeze)
	sign := func(req *http.Request, body []byte, machine string) {
		auth.SignRequest(req, body, machine, key, clock.Now())
	}
	ending, err := installer.Run(ctx, installer.Config{
		Client: c.AgentAPI(sign, clock.Learn), Do: do, Machine: args["trivet.machine"], MAC: m.MAC,
		Token: args["trivet.token"],
		Key:   base64.StdEncoding.EncodeToString(key.Public().(ed25519.PublicKey)), BootID: bootID(), Version: "lab",
		Inventory: m.inventory(), Journal: j, Clock: clock, Log: m.Log.With("machine", m.Name),
	})
	if err == nil && ending == action.EndOff || ctx.Err() != nil {
		<-power.Done()
	}
	return err
}

func (m *Machine) inventory() trivet.Inventory {
	return trivet.Inventory{
		Arch: "amd64", Vendor: "Trivet", Product: "simulated machine", Serial: "LAB-" + m.Name,
		Firmware: "bios", Cores: 1, MemoryMB: 64,
		Disks: []trivet.Disk{{Name: "/dev/vda", Bytes: DiskBytes}},
		NICs:  []trivet.NICInfo{{Name: "eth0", MAC: m.MAC, Link: true}},
	}
}

// startSystem is the first boot of the installed system: it phones home as cloud-init does.
func (m *Machine) startSystem(ctx context.Context) error {
	urls, err := phoneHomeOf(m.disk() + ".root")
	if err != nil {
		return fmt.Errorf("no bootable system on the disk: %w", err)
	}
	for ctx.Err() == nil {
		if err := phoneHome(ctx, urls); err == nil {
			m.Up()
			<-ctx.Done()
			return nil
		}
		_ = wait.Sleep(ctx, time.Second)
	}
	return ctx.Err()
}

func bootID() string {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
