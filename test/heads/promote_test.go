package heads_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/bmc/bmctest"
	"github.com/trivet-project/trivet/internal/lab"
	"github.com/trivet-project/trivet/internal/testhead"
)

// labHost is a simulated machine with a BMC, whose installed system may be a head.
type labHost struct {
	*lab.Supply
	dir string
	up  chan struct{} // each time when its installed system has started
}

// addHost creates a machine of a name, and templates that install it: one of them as a head.
func addHost(t *testing.T, h *head, name, mac string) *labHost {
	t.Helper()
	log := testhead.NewLog()
	m := &labHost{dir: t.TempDir(), up: make(chan struct{}, 16)}
	m.Supply = &lab.Supply{Machine: &lab.Machine{Name: name, MAC: mac, Dir: m.dir, DHCP: []string{h.Address + ":7067"},
		Up: func() { m.up <- struct{}{} }, Log: slog.New(slog.NewTextHandler(log, nil))}}
	server, err := bmctest.StartRedfish("127.0.0.1:0", m.Handler("admin", "admin"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.Close()
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("log of %s:\n%s", name, log)
		}
	})
	h.Apply(fmt.Sprintf(`kind: Secret
name: %[1]s
spec: {data: {user: admin, password: admin}, addresses: [127.0.0.0/8], insecure: true}
---
kind: Machine
name: %[1]s
spec:
  nics: [{mac: %[2]q}]
  bmc: {protocol: redfish, address: %[3]q, secret: %[1]s}
---
kind: Template
name: install
spec:
  actions:
    - {name: wipe, use: wipe}
    - {name: seed, use: seed}
    - {name: reboot, use: reboot}
---
kind: Template
name: head
spec:
  actions:
    - {name: wipe, use: wipe}
    - {name: seed, use: seed}
    - {name: head, use: head, with: {program: "", config: "log-level: info"}}
    - {name: reboot, use: reboot}
`, name, mac, server.Address))
	return m
}

// root is the root directory of the installed system.
func (m *labHost) root() string { return filepath.Join(m.dir, m.Machine.Name+".disk.root") }

// startHead starts the head that was installed, by the configuration that it was installed with.
func (m *labHost) startHead(t *testing.T, name, address string) *head {
	t.Helper()
	<-m.up
	h := newHead(t, name)
	h.Address, h.Dir = address, filepath.Join(m.root(), "var/lib/trivet")
	h.StartIn("", "--config", filepath.Join(m.root(), "etc/trivet/config.yaml"), "--api", address+":7480",
		"--boot", address+":7481", "--tftp", address+":7069", "--dhcp-listen", address+":7067")
	return h
}

// begin starts a command, which a test kills or waits for.
func (h *head) begin(args ...string) (p *testhead.Process) {
	h.Helper()
	cmd := exec.Command(testhead.Program(h.T), args...)
	cmd.Env = append(os.Environ(), "TRIVET_CONFIG="+h.AdminFile())
	p, err := testhead.Start(cmd)
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(p.Kill)
	return p
}

// killedWhen runs a command, and kills it when something has happened.
func (h *head) killedWhen(what string, happened func() error, args ...string) {
	h.Helper()
	p := h.begin(args...)
	h.Await(what, happened)
	p.Kill()
	h.Logf("killed when %s", what)
}

// A machine in service becomes a head, while records are written, by a command that is killed at several points and
// runs again; then it replaces a head, and is demoted. No write fails, and none is lost.
func TestPromote(t *testing.T) {
	t.Parallel()
	h0, l := startWithLedger(t)
	h1 := h0.join("head1")
	l.cl = h0.client(h0, h1)
	platform(t, h0)
	m := addHost(t, h0, "m7", "52:54:00:77:00:07")
	h0.MustTrivet("provision", "web1", "--template", "install", "--machine", "m7")
	<-m.up
	stop := l.underLoad()
	plan := h0.MustTrivet("head", "promote", "m7", "--plan")
	for _, text := range []string{"machine/m7 is INSTALLED as a head, a voter at 127.9.9.",
		"provision web1, which it serves", "Votes:   2 of 2 voters respond, and 2 must", "afterwards 3 of 3 voters respond, and 2 must",
		"Nothing was changed."} {
		if !strings.Contains(plan, text) {
			t.Errorf("the plan lacks %q:\n%s", text, plan)
		}
	}

	promote := []string{"head", "promote", "m7", "--yes"}
	record := func() (*trivet.Machine, error) { return client.Of[trivet.Machine](l.cl).Get(t.Context(), "m7") }
	h0.killedWhen("its provision was created", func() error {
		_, err := client.Of[trivet.Provision](l.cl).Get(t.Context(), "head-m7")
		return err
	}, promote...)
	h0.killedWhen("it was released, and is installed", func() error {
		r, err := record()
		if err == nil && r.Status.Provision != "head-m7" {
			err = fmt.Errorf("it is %s for %q", r.Status.State, r.Status.Provision)
		}
		return err
	}, promote...)
	h0.killedWhen("it is installed", func() error {
		r, err := record()
		if err == nil && r.Status.State != trivet.MachineActive {
			err = fmt.Errorf("it is %s", r.Status.State)
		}
		return err
	}, promote...)
	last := h0.begin(promote...)
	p := must(client.Of[trivet.Provision](l.cl).Get(t.Context(), "head-m7"))(t)
	n := m.startHead(t, "head2", p.Status.Address)
	if err := last.Wait(testhead.Timeout); err != nil || last.ExitCode() != 0 ||
		!last.Log.Contains("machine/m7 is head/head2, a voter") {
		t.Fatalf("%v, exit status %d:\n%s", err, last.ExitCode(), last.Log)
	}
	h0.awaitMember("head2")
	if again := h0.MustTrivet("head", "promote", "m7", "--yes"); !strings.Contains(again, "machine/m7 is head/head2") {
		t.Errorf("the same again:\n%s", again)
	}

	m.isProtected(t, h0)
	m.tokenIsUsed(t, h0)

	t.Log("it replaces head1, which joins again, and is demoted")
	h0.MustTrivet("head", "remove", "head1", "--yes")
	h1.AwaitExit()
	l.write()
	h1.Up("--rejoin", "--join", h0.API()+","+n.API(), "--token", h0.token())
	h0.awaitMember("head3")
	if text := h0.MustTrivet("head", "demote", "head2", "--plan"); !strings.Contains(text, "head/head2, a voter") ||
		!strings.Contains(text, "machine/m7 is active and serves provision head-m7, which is deleted") {
		t.Errorf("the plan:\n%s", text)
	}
	h0.killedWhen("head2 was removed", func() error {
		r, err := client.Of[trivet.Head](l.cl).Get(t.Context(), "head2")
		if err == nil && r.Status.State != trivet.HeadRemoved {
			err = errors.New(string(r.Status.State))
		}
		return err
	}, "head", "demote", "head2", "--yes")
	n.AwaitExit()
	h0.MustTrivet("head", "demote", "head2", "--yes", "--wait")
	h0.Await("this client's head knows, too, that the machine is available", func() error {
		r, err := record()
		if err == nil && (r.Status.State != trivet.MachineAvailable || r.Status.HoldsData != "") {
			err = fmt.Errorf("%+v", r.Status)
		}
		return err
	})
	if again := h0.MustTrivet("head", "demote", "head2", "--yes"); !strings.Contains(again, "already removed") {
		t.Errorf("the same again:\n%s", again)
	}
	l.acknowledged(stop(), h0.client(h0), h0.client(h1))
}

// isProtected expects that nothing takes the machine from its head.
func (m *labHost) isProtected(t *testing.T, h *head) {
	t.Helper()
	for _, args := range [][]string{{"release", "m7", "--yes"}, {"delete", "provision", "head-m7", "--yes"},
		{"delete", "machine", "m7"}, {"rename", "machine", "m7", "m8"}, {"redeploy", "m7", "--yes"},
		{"head", "promote", "m7", "--name", "other", "--plan"}} {
		r, err := h.Trivet(args...)
		if args[0] == "head" {
			if err != nil || !strings.Contains(r.All, "machine/m7 is head/head2") {
				t.Errorf("%q: %v\n%s", args, err, r.All)
			}
			continue
		}
		if err == nil || !strings.Contains(r.All, "trivet head demote") {
			t.Errorf("%q: %v\n%s", args, err, r.All)
		}
	}
}

// tokenIsUsed expects that what the machine was installed with lets no other head join, and that no record has it.
func (m *labHost) tokenIsUsed(t *testing.T, h *head) {
	t.Helper()
	config := string(must(os.ReadFile(filepath.Join(m.root(), "etc/trivet/config.yaml")))(t))
	_, token, _ := strings.Cut(config, "token: \"")
	token, _, ok := strings.Cut(token, "\"")
	if !ok || !strings.Contains(token, ".tb1~join~m7~") {
		t.Fatalf("the configuration has no token:\n%s", config)
	}
	other := newHead(t, "other")
	other.Start("--join", h.API(), "--token", token)
	other.expectRefusal("it is for machine m7 at 127.9.9.")
	for _, kind := range []string{"machines", "provisions", "workflows", "heads", "tokens", "events"} {
		if all := h.MustTrivet("get", kind, "-o", "json"); strings.Contains(all, "tb1~join") {
			t.Errorf("%s have the token", kind)
		}
	}
}
