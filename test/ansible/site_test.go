package ansible_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/agent/action"
	"github.com/trivet-project/trivet/internal/agent/installer"
	"github.com/trivet-project/trivet/internal/agent/installer/journal"
	"github.com/trivet-project/trivet/internal/agent/installer/osinit"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/lab"
	"github.com/trivet-project/trivet/internal/testhead"
)

// site is a head with three active machines and one that is available. Commands of runner are by a viewer.
type site struct {
	runner
	head *testhead.Head
	cl   *client.Client
}

// Templates that create a file in the directory of Ansible's command where they are evaluated. A label has no comma.
const (
	trace        = "evaluated"
	hostile      = `{{ lookup('pipe','touch ` + trace + `') }}`
	hostileLabel = `{{ lookup(*'pipe|touch ` + trace + `'.split('|')) }}`
)

// hidden is part of each text that must not be in an inventory.
const hidden = "hunter2"

const siteRecords = `
kind: Network
name: loopback
spec: {cidr: 127.0.0.0/8, ranges: [{from: 127.62.0.1, to: 127.62.0.250}]}
---
kind: Template
project: shared
name: install
spec: {actions: [{name: seed, use: seed}, {name: reboot, use: reboot}]}
---
kind: Secret
name: bmc
spec: {data: {user: hunter2-user, password: hunter2-password}, addresses: [127.62.1.104/32]}
---
kind: Machine
name: web1
labels: {pool: web, tier: a.b, maintained: ""}
annotations: {note: hunter2-annotation}
spec: {rack: r 1, nics: [{mac: "52:54:00:62:00:01", address: 127.62.1.1}, {mac: "52:54:00:62:01:01"}]}
---
kind: Machine
name: db1
labels: {pool: db, tier: a-b}
spec: {rack: r 1, nics: [{mac: "52:54:00:62:00:02"}]}
---
kind: Machine
name: bad1
labels: {pool: bad, note: "` + hostileLabel + `"}
spec: {rack: "` + hostile + `", nics: [{mac: "52:54:00:62:00:03"}]}
---
kind: Machine
name: spare1
labels: {pool: spare}
spec:
  arch: arm64
  nics: [{mac: "52:54:00:62:00:04", address: 127.62.1.4}]
  bmc: {protocol: redfish, address: 127.62.1.104, secret: bmc}
---
kind: Provision
name: web
spec: {template: shared/install, selector: {pool: web}, count: 1, userData: "#cloud-config\npassword: hunter2\n"}
---
kind: Provision
name: db
project: lab
spec: {template: shared/install, machine: db1}
---
kind: Provision
name: bad
spec: {template: shared/install, machine: bad1}
`

// active are the machines that are powered on, by the last digit of their MAC.
var active = []string{1: "web1", 2: "db1", 3: "bad1"}

// newSite starts the head and the machines, and waits until they are active.
func newSite(t *testing.T) *site {
	t.Helper()
	head := testhead.NewHead(t, "head0")
	s := &site{runner{t, []string{"TRIVET=" + testhead.Program(t), "TRIVET_CONFIG=" + head.AdminFile()}}, head, nil}
	s.head.Up()
	s.cl = s.head.Client(testhead.Timeout)
	s.head.MustTrivet("account", "create", "ansible", "--role", "viewer")
	s.env = append(s.env, "TRIVET_TOKEN="+s.head.MustTrivet("token", "issue", "ansible"))
	images := filepath.Join(t.TempDir(), "platform")
	for _, name := range []string{"vmlinuz", "initrd.img"} {
		s.write(filepath.Join(images, name), name, 0o600)
	}
	s.head.MustTrivet("platform", "import", images, "--name", "installer", "--default")
	s.head.Apply(siteRecords)
	s.powerOn()
	for _, name := range active[1:] {
		s.head.Await(name+" is active", func() error {
			m, err := client.Of[trivet.Machine](s.cl).Get(t.Context(), name)
			if err == nil && m.Status.State != trivet.MachineActive {
				err = fmt.Errorf("it is %s: %s", m.Status.State, m.Status.Reason)
			}
			return err
		})
	}
	return s
}

// powerOn runs the machines until the end of the test.
func (s *site) powerOn() {
	s.Helper()
	ctx, off := context.WithCancel(s.Context())
	var running sync.WaitGroup
	s.Cleanup(func() { off(); running.Wait() })
	for i, name := range active[1:] {
		m := &lab.Machine{Name: name, MAC: fmt.Sprintf("52:54:00:62:00:%02x", i+1), Dir: s.TempDir(),
			DHCP: []string{s.head.Address + ":7067"}, Log: slog.New(slog.DiscardHandler), Up: func() {}}
		if name == "bad1" {
			m.Installer = func(ctx context.Context, args string) error { return runHostile(ctx, m, osinit.ParseCmdline(args)) }
		}
		running.Go(func() { _ = m.Run(ctx) })
	}
}

// runHostile runs the agent of a machine whose inventory is templates of Ansible.
func runHostile(ctx context.Context, m *lab.Machine, args osinit.Cmdline) error {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	c, err := client.New(client.Config{Endpoints: args.List("trivet.url"), Trust: args["trivet.ca"]})
	if err != nil {
		return err
	}
	defer c.Close()
	j, err := journal.Open(m.JournalPath())
	if err != nil {
		return err
	}
	defer j.Close()
	clock := &installer.Clock{}
	sign := func(req *http.Request, body []byte, machine string) {
		auth.SignRequest(req, body, machine, key, clock.Now())
	}
	disk := map[string]string{"/dev/vda": filepath.Join(m.Dir, m.Name+".disk")}
	work := &action.Env{Host: action.Files{Paths: disk}, Dir: m.Dir, Firmware: "bios"}
	_, err = installer.Run(ctx, installer.Config{
		Client: c.AgentAPI(sign, clock.Learn), Do: work.Do, Machine: args["trivet.machine"], MAC: m.MAC,
		Token: args["trivet.token"], Key: base64.StdEncoding.EncodeToString(key.Public().(ed25519.PublicKey)),
		BootID: rand.Text(), Version: "lab", Journal: j, Clock: clock, Log: m.Log,
		Inventory: trivet.Inventory{Arch: hostile, Vendor: hostile, Product: hostile, Serial: hostile,
			Disks: []trivet.Disk{{Name: "/dev/vda", Bytes: lab.DiskBytes}}},
	})
	return err
}
