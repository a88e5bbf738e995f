// Package lab has simulated machines and what it takes to show a whole site on one computer. They speak real DHCP and HTTP
// to real heads and run real workflows with the real agent; only the hardware is simulated: firmware is a few lines of Go,
// a disk is a file, and what a machine would mount is a folder beside it. Nothing here is reachable from a head.
package lab

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
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
)

// Machine is one simulated box.
type Machine struct {
	Name string
	MAC  string
	Dir  string   // its disks
	DHCP []string // where heads' DHCP listens, in the order to try
	// ScriptURL, if set, gets the boot script's URL instead of a DHCP client on loopback.
	ScriptURL func(ctx context.Context) (scriptURL string, err error)
	// Installer, if set, is run as the installer OS instead of this version's agent; its return restarts the machine.
	Installer func(ctx context.Context, args string) error
	Log       *slog.Logger
	// Up is called when the installed system has started and phoned home.
	Up func()
}

// DiskBytes is the size of a simulated disk. It is sparse.
const DiskBytes = 64 << 20

// JournalPath is the file that stands for a small device of its own in the machine: the agent's journal, synced at every line,
// from which one can tell what ran and how often.
func (m *Machine) JournalPath() string { return filepath.Join(m.Dir, m.Name+".ledger") }

func (m *Machine) disk() string { return filepath.Join(m.Dir, m.Name+".disk") }

// Run keeps the machine powered until ctx ends: it boots what it is told to, again and again.
func (m *Machine) Run(ctx context.Context) error {
	if err := m.makeDisks(); err != nil {
		return err
	}
	for ctx.Err() == nil {
		err := m.boot(ctx)
		if err != nil && ctx.Err() == nil {
			m.Log.Debug("boot failed; again", "machine", m.Name, "error", err)
			pause(ctx, time.Second)
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

// boot goes from power on until the machine restarts or its system is up and ctx ends.
func (m *Machine) boot(ctx context.Context) error {
	ask := m.askDHCP
	if m.ScriptURL != nil {
		ask = m.ScriptURL
	}
	url, err := ask(ctx)
	if err != nil {
		return err
	}
	script, err := fetchScript(ctx, url)
	if err != nil {
		return err
	}
	switch script.kind {
	case bootDisk:
		return m.startSystem(ctx)
	case bootAgent:
		for _, file := range script.files {
			if err := fetchFile(ctx, file); err != nil {
				return err
			}
		}
		if m.Installer != nil {
			return m.Installer(ctx, script.args)
		}
		return m.runAgent(ctx, osinit.ParseCmdline(script.args))
	}
	pause(ctx, time.Second) // told to hold
	return nil
}

// runAgent is the installer OS.
func (m *Machine) runAgent(ctx context.Context, args osinit.Cmdline) error {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	clock := &installer.Clock{}
	c, err := client.New(client.Config{Endpoints: args.List("trivet.url"), Trust: args["trivet.ca"], UserAgent: "trivet-lab"})
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
		Host: action.Files{Paths: map[string]string{"/dev/vda": m.disk()}}, Dir: m.Dir, Firmware: "bios", Fetch: (&blob.Fetcher{}).Fetch,
	}
	sign := func(req *http.Request, body []byte, machine string) {
		auth.SignRequest(req, body, machine, key, clock.Now())
	}
	ending, err := installer.Run(ctx, installer.Config{
		Door: c.Door(sign, clock.Learn), Do: work.Do, Machine: args["trivet.machine"], MAC: m.MAC, Token: args["trivet.token"],
		Key: base64.StdEncoding.EncodeToString(key.Public().(ed25519.PublicKey)), BootID: bootID(), Version: "lab",
		Inventory: m.inventory(), Journal: j, Clock: clock, Log: m.Log.With("machine", m.Name),
	})
	if err == nil && ending == action.EndOff {
		<-ctx.Done()
	}
	return err
}

func (m *Machine) inventory() trivet.Inventory {
	return trivet.Inventory{
		Arch: "amd64", Vendor: "Trivet", Product: "simulated machine", Serial: "LAB-" + m.Name, Firmware: "bios", Cores: 1, MemoryMB: 64,
		Disks: []trivet.Disk{{Name: "/dev/vda", Bytes: DiskBytes}}, NICs: []trivet.NICInfo{{Name: "eth0", MAC: m.MAC, Link: true}},
	}
}

// startSystem is the installed system's first boot: it phones home as its seed says, as cloud-init does.
func (m *Machine) startSystem(ctx context.Context) error {
	urls, err := phoneHomeOf(m.disk() + ".root")
	if err != nil {
		return fmt.Errorf("nothing to boot on the disk: %w", err)
	}
	for ctx.Err() == nil {
		if err := phoneHome(ctx, urls); err == nil {
			m.Up()
			<-ctx.Done()
			return nil
		}
		pause(ctx, time.Second)
	}
	return ctx.Err()
}

func bootID() string {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
