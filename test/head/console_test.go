package head_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/bmc"
	"github.com/trivet-project/trivet/internal/bmc/bmctest"
	"github.com/trivet-project/trivet/internal/testhead"
)

// addBMC gives machine m1 a BMC.
func (h *head) addBMC(cfg bmc.Config) {
	h.Helper()
	h.Apply(fmt.Sprintf("kind: Secret\nname: bmc\nspec: {data: {user: %q, password: %q}, insecure: %v, addresses: [127.0.0.0/8]}\n---\n"+
		"kind: Machine\nname: m1\nlabels: {rack: r1}\nspec:\n  nics: [{mac: %q}]\n"+
		"  bmc: {protocol: %q, address: %q, secret: bmc}\n", cfg.User, cfg.Password, cfg.Insecure, knownMAC, cfg.Protocol,
		cfg.Address))
}

// withConsole starts a head whose machine m1 has a BMC with a serial line.
func withConsole(t *testing.T) (*head, *bmctest.IPMI, *bmctest.Line) {
	t.Helper()
	line := bmctest.NewLine(t)
	sim, err := bmctest.StartIPMI(bmctest.NewBox(), bmctest.Options{Serial: line.Address()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sim.Stop() }) // some tests stop it before
	h := newHead(t)
	h.addBMC(sim.Config)
	return h, sim, line
}

// connected is a running trivet console.
type connected struct {
	*testhead.Process
	keys io.WriteCloser
}

// connect runs trivet console m1.
func (h *head) connect(flags ...string) *connected {
	h.Helper()
	cmd := testhead.Command("", testhead.Program(h.T), append([]string{"console", "m1"}, flags...)...)
	cmd.Env = append(os.Environ(), "TRIVET_CONFIG="+h.AdminFile())
	keys, err := cmd.StdinPipe()
	if err != nil {
		h.Fatal(err)
	}
	return h.startConsole(cmd, keys)
}

func (h *head) startConsole(cmd *exec.Cmd, keys io.WriteCloser) *connected {
	h.Helper()
	p, err := testhead.Start(cmd)
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(p.Kill)
	return &connected{p, keys}
}

// await waits for a text on the terminal.
func (c *connected) await(t *testing.T, text string) {
	t.Helper()
	if !c.Log.Await(text, timeout) {
		t.Fatalf("trivet console has not printed %q:\n%s", text, c.Log)
	}
}

// end expects the exit status, once the person has left or the console has ended.
func (c *connected) end(t *testing.T, want int) {
	t.Helper()
	if err := c.Wait(timeout); err != nil || c.ExitCode() != want {
		t.Fatalf("%v, exit status %d; want %d:\n%s", err, c.ExitCode(), want, c.Log)
	}
}

// Two people share a console: both see what the machine writes, and both type. The audit log has both, and not what was
// typed. A viewer sees nothing.
func TestConsole(t *testing.T) {
	t.Parallel()
	h, _, line := withConsole(t)
	a := h.connect()
	a.await(t, "leaves")
	b := h.connect()
	b.await(t, "leaves")
	io.WriteString(line, "m1 login: ")
	a.await(t, "m1 login: ")
	b.await(t, "m1 login: ")
	io.WriteString(a.keys, "root\r")
	line.Typed(len("root\r"))
	io.WriteString(b.keys, "hunter2\r")
	if got := line.Typed(len("root\rhunter2\r")); got != "root\rhunter2\r" {
		t.Errorf("the machine got %q", got)
	}
	io.WriteString(a.keys, "~.")
	a.end(t, 0)
	io.WriteString(line, "Last login: never\r\n")
	b.await(t, "Last login: never")
	b.Signal(syscall.SIGTERM)
	b.end(t, 130)
	audit := h.MustTrivet("audit", "machine/m1", "-o", "json")
	if n := strings.Count(audit, `"action":"console"`); n != 2 || strings.Contains(audit, "hunter2") {
		t.Errorf("the audit log has %d openings:\n%s", n, audit)
	}
	if h.Log.Contains("hunter2") {
		t.Error("the head's log has what was typed")
	}
	h.Apply("kind: Account\nname: eve\nspec: {role: viewer}\n")
	h.ClientToken = h.MustTrivet("token", "issue", "eve")
	k, err := h.Client(-1).OpenConsole(t.Context(), "m1", false)
	if err == nil || !strings.Contains(err.Error(), "viewer") {
		t.Errorf("a viewer: %v, %v", k, err)
	}
}

// A console that another program has is refused with what to do, and taken with --take; that program has lost it then.
func TestConsoleInUse(t *testing.T) {
	t.Parallel()
	h, sim, line := withConsole(t)
	other, err := bmc.OpenConsole(t.Context(), sim.Config, false)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if r, err := h.Trivet("console", "m1"); err == nil || !strings.Contains(r.All, "in use") ||
		!strings.Contains(r.All, "hint: end that session, or take the console with --take") {
		t.Errorf("%v:\n%s", err, r.All)
	}
	a := h.connect("--take")
	a.await(t, "leaves")
	io.WriteString(line, "taken")
	a.await(t, "taken")
	third, err := bmc.OpenConsole(t.Context(), sim.Config, true)
	if err != nil {
		t.Fatal(err)
	}
	defer third.Close()
	a.end(t, 1)
	if !a.Log.Contains("another user took it") {
		t.Errorf("the person reads:\n%s", a.Log)
	}
}

// What cannot have a console says why.
func TestNoConsole(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	expect := func(name string, want ...string) {
		t.Helper()
		r, err := h.Trivet("console", name)
		for _, text := range want {
			if err == nil || !strings.Contains(r.All, text) {
				t.Errorf("%v; want %q:\n%s", err, text, r.All)
			}
		}
	}
	expect("m1", "no serial console", "spec.bmc")
	expect("none", "not found")
	h.addBMC(bmctest.Sim(t, bmctest.NewBox()))
	expect("m1", "no serial console")
	h.addBMC(bmctest.Redfish(t, bmctest.NewBox()))
	expect("m1", "no serial console", "SerialConsole.SSH")
}

// A machine that writes without end harms neither the head nor what is typed, and what is not read in time is counted.
func TestConsoleFlood(t *testing.T) {
	t.Parallel()
	h, _, line := withConsole(t)
	k, err := h.Client(timeout).OpenConsole(t.Context(), "m1", false)
	if err != nil {
		t.Fatal(err)
	}
	const size = 4 << 20
	go line.Write(bytes.Repeat([]byte("0123456789abcde\n"), size/16))
	var text, missed int64
	for typed := false; text+missed < size; {
		got, reopened, err := k.Read(t.Context())
		if err != nil || reopened || got.Ended != "" {
			t.Fatalf("after %d bytes: %v, %v, %s", text, reopened, err, got.Ended)
		}
		text, missed = text+int64(len(got.Text)), missed+got.Missed
		if !typed {
			if err := k.Write(t.Context(), []byte("stop\r")); err != nil {
				t.Fatal(err)
			}
			typed = true
		}
	}
	if text+missed != size || line.Typed(5) != "stop\r" {
		t.Errorf("%d bytes and %d missed; typed %q", text, missed, line.Typed(5))
	}
	h.mustServe()
}

// A BMC that stops ends the console with its cause.
func TestConsoleOfLostBMC(t *testing.T) {
	t.Parallel()
	h, sim, line := withConsole(t)
	a := h.connect()
	a.await(t, "leaves")
	io.WriteString(line, "up")
	a.await(t, "up")
	if err := sim.Stop(); err != nil {
		t.Fatal(err)
	}
	io.WriteString(a.keys, "\r")
	a.end(t, 1)
	if !a.Log.Contains("does not acknowledge") || !a.Log.Contains("hint: open it again") {
		t.Errorf("the person reads:\n%s", a.Log)
	}
	h.mustServe()
}

// The terminal is in raw mode meanwhile, so that each key goes to the machine, and as before at the end: when the
// person leaves, and when the program is ended.
func TestConsoleRestoresTerminal(t *testing.T) {
	t.Parallel()
	h, _, line := withConsole(t)
	want := ""
	for name, leave := range map[string]func(*connected, *os.File){
		"~.":      func(_ *connected, f *os.File) { io.WriteString(f, "\r~.") },
		"SIGTERM": func(c *connected, _ *os.File) { c.Signal(syscall.SIGTERM) },
		"SIGHUP":  func(c *connected, _ *os.File) { c.Signal(syscall.SIGHUP) },
	} {
		person, terminal := openPTY(t)
		before := terminalMode(t, terminal)
		cmd := testhead.Command("", testhead.Program(t), "console", "m1")
		cmd.Env = append(os.Environ(), "TRIVET_CONFIG="+h.AdminFile())
		cmd.Stdin = terminal
		c := h.startConsole(cmd, nil)
		c.await(t, "leaves")
		if during := terminalMode(t, terminal); during.Lflag&(unix.ICANON|unix.ECHO|unix.ISIG) != 0 {
			t.Errorf("%s: not in raw mode", name)
		}
		io.WriteString(person, "\x03") // Ctrl-C goes to the machine
		want += "\x03"
		if got := line.Typed(len(want)); !strings.HasSuffix(got, "\x03") {
			t.Errorf("%s: the machine got %q", name, got)
		}
		leave(c, person)
		if err := c.Wait(timeout); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if after := terminalMode(t, terminal); after != before {
			t.Errorf("%s: the terminal was not restored: %+v; want %+v", name, after, before)
		}
		if name == "~." {
			want += "\r"
		}
	}
}

// openPTY returns a terminal and the side of the person who uses it.
func openPTY(t *testing.T) (person, terminal *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { person.Close() })
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	return person, terminal
}

func terminalMode(t *testing.T, f *os.File) unix.Termios {
	t.Helper()
	mode, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *mode
}

// collectConsole sets that the console of m1 is collected, and starts a run that fails as m1 does not boot.
func (h *head) collectConsole(cfg bmc.Config) {
	h.Helper()
	h.addBMC(cfg)
	h.Apply("kind: Template\nname: t\nspec:\n  limits: {dhcp: {timeout: 10s, retries: 0}}\n" +
		"  actions: [{name: one, use: noop}]\n")
	if _, err := client.Of[trivet.Machine](h.Client(timeout)).Patch(h.Context(), "m1",
		[]byte(`{"spec":{"bmc":{"console":true}}}`), 0); err != nil {
		h.Fatal(err)
	}
	h.MustTrivet("provision", "p", "--template", "t", "--machine", "m1", "--no-wait")
}

// awaitFailed waits for the end of the run of collectConsole, and for what is added to its failure.
func (h *head) awaitFailed(done func(*trivet.Failure) bool) {
	h.Helper()
	h.Await("the run has failed", func() error {
		w, err := client.Of[trivet.Workflow](h.Client(timeout)).Get(h.Context(), "p-1")
		if err != nil {
			return err
		}
		if w.Status.Failure == nil || w.Status.Failure.Step != trivet.StepDHCP || !done(w.Status.Failure) {
			return fmt.Errorf("the run is %+v, %+v", w.Status, w.Status.Failure)
		}
		return nil
	})
}

// What a machine writes during its run is in the logs of the run, and the last lines are in its failure. Control
// characters are escaped in the one and left out of the other.
func TestConsoleIsCollected(t *testing.T) {
	t.Parallel()
	t.Run("ipmi", func(t *testing.T) {
		t.Parallel()
		h, sim, line := withConsole(t)
		h.testCollected(sim.Config, line)
	})
	t.Run("redfish", func(t *testing.T) {
		t.Parallel()
		line := bmctest.NewLine(t)
		cfg, _ := bmctest.RedfishWithLine(t, bmctest.NewBox(), line, true)
		newHead(t).testCollected(cfg, line)
	})
}

func (h *head) testCollected(cfg bmc.Config, line *bmctest.Line) {
	h.Helper()
	t := h.T
	h.collectConsole(cfg)
	stop := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		for {
			io.WriteString(line, "\x1b[31mNo bootable device\x1b[0m\r\n")
			select {
			case <-stop:
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
	})
	h.awaitFailed(func(f *trivet.Failure) bool { return strings.Contains(f.Console, "No bootable device\nNo boot") })
	close(stop)
	writing.Wait()
	if logs := h.MustTrivet("logs", "m1", "--action", "console"); !strings.Contains(logs, "==> console, epoch ") ||
		!strings.Contains(logs, `\u001b[31mNo bootable device`) {
		t.Errorf("the log is:\n%s", logs)
	}
	if why := h.MustTrivet("why", "m1"); !strings.Contains(why, "serial console:\n  No bootable device\n") {
		t.Errorf("why says:\n%s", why)
	}
	if r, err := h.TrivetStdin("kind: Template\nname: bad\nspec: {actions: [{name: console, use: noop}]}\n", "apply", "-f",
		"-"); err == nil || !strings.Contains(r.All, "serial console") {
		t.Errorf("an action named console: %v", err)
	}
}

// A BMC without a console changes nothing about the run.
func TestNoConsoleIsCollected(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	h.collectConsole(bmctest.Sim(t, bmctest.NewBox()))
	h.awaitFailed(func(f *trivet.Failure) bool { return f.Console == "" })
	if logs := h.MustTrivet("logs", "m1"); strings.Count(logs, "no serial console") != 1 {
		t.Errorf("the log is:\n%s", logs)
	}
}
