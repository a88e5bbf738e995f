package bmc_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	gobmc "github.com/bougou/go-ipmi/pkg/bmc"
	"github.com/bougou/go-ipmi/pkg/hal/mock"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/bmc"
	"github.com/trivet-project/trivet/internal/bmc/bmctest"
)

// fakeLine is the serial line of go-ipmi's BMC.
type fakeLine struct {
	*mock.FakeConsoleConn
	breaks atomic.Int32
}

func (l *fakeLine) SendBreak(context.Context) error {
	l.breaks.Add(1)
	return nil
}

// goIPMIWithLine runs go-ipmi's BMC with a serial line that accepts so many characters at a time; 0: all.
func goIPMIWithLine(t *testing.T, limit int) (bmc.Config, *gobmc.BMC, *fakeLine) {
	t.Helper()
	line, machine := &fakeLine{FakeConsoleConn: &mock.FakeConsoleConn{WriteLimit: limit}}, mock.New()
	machine.SetConsole(&mock.Console{Conn: line})
	cfg, b := goIPMIServer(t, types.CipherSuiteID17, machine)
	const encryptedForOperators = 0xc3
	if code := b.SOL.Config().SetParam(2, []byte{encryptedForOperators}); code != 0 {
		t.Fatal(code)
	}
	return cfg, b, line
}

// simWithLine runs ipmi_sim with a serial line.
func simWithLine(t *testing.T) (bmc.Config, *bmctest.Line) {
	t.Helper()
	line := bmctest.NewLine(t)
	sim, err := bmctest.StartIPMI(bmctest.NewBox(), bmctest.Options{Serial: line.Address()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sim.Stop(); err != nil {
			t.Error(err)
		}
	})
	return sim.Config, line
}

func openConsole(t *testing.T, cfg bmc.Config, take bool) bmc.Console {
	t.Helper()
	c, err := bmc.OpenConsole(t.Context(), cfg, take)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// read returns the next n characters of the machine.
func read(t *testing.T, c bmc.Console, n int) string {
	t.Helper()
	b := make([]byte, n)
	if _, err := io.ReadFull(c, b); err != nil {
		t.Fatalf("read: %q, %v", b, err)
	}
	return string(b)
}

// Against ipmi_sim and sshd: all that the machine writes is read in order, and all that is typed is typed once.
func TestConsole(t *testing.T) {
	t.Parallel()
	t.Run("ipmi_sim", func(t *testing.T) {
		t.Parallel()
		cfg, line := simWithLine(t)
		testConsole(t, cfg, line)
	})
	for name, shared := range map[string]bool{"sshd": false, "sshd with a command line": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			line := bmctest.NewLine(t)
			cfg, _ := bmctest.RedfishWithLine(t, bmctest.NewBox(), line, shared)
			testConsole(t, cfg, line)
		})
	}
}

func testConsole(t *testing.T, cfg bmc.Config, line *bmctest.Line) {
	t.Helper()
	c := openConsole(t, cfg, false)
	text := strings.Repeat("0123456789abcde\n", 4<<10)
	go io.WriteString(line, text)
	if got := read(t, c, len(text)); got != text {
		t.Errorf("read %d characters that differ", len(got))
	}
	typed := strings.Repeat("fedcba987654321\n", 256)
	if n, err := io.WriteString(c, typed); n != len(typed) || err != nil {
		t.Fatal(n, err)
	}
	if got := line.Typed(len(typed)); got != typed {
		t.Errorf("typed %d characters that differ", len(got))
	}
	if err := c.Break(); err != nil {
		t.Errorf("break: %v", err)
	}
	c.Close()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("read of a closed console: %v", err)
	}
	if _, err := c.Write([]byte("x")); err == nil {
		t.Error("write to a closed console: no error")
	}
	openConsole(t, cfg, false) // the BMC knows that it was closed
}

// Against go-ipmi, which accepts 7 characters at a time: what is not accepted is sent again, and nothing twice.
func TestConsolePartialAccepts(t *testing.T) {
	t.Parallel()
	cfg, _, line := goIPMIWithLine(t, 7)
	c := openConsole(t, cfg, false)
	typed := strings.Repeat("fedcba987654321\n", 16)
	if n, err := io.WriteString(c, typed); n != len(typed) || err != nil {
		t.Fatal(n, err)
	}
	if got := line.TXString(); got != typed {
		t.Errorf("typed %q", got)
	}
	text := strings.Repeat("0123456789abcde\n", 1<<10)
	line.FeedRX([]byte(text))
	if got := read(t, c, len(text)); got != text {
		t.Errorf("read %d characters that differ", len(got))
	}
	if err := c.Break(); err != nil || line.breaks.Load() != 1 {
		t.Errorf("%d breaks, %v", line.breaks.Load(), err)
	}
}

// A machine that takes no characters ends neither the console nor the wait for it.
func TestConsoleOfMachineThatTakesNothing(t *testing.T) {
	t.Parallel()
	cfg, _, line := goIPMIWithLine(t, 0)
	c := openConsole(t, cfg, false)
	line.SetWriteErr(errors.New("no power"))
	if n, err := c.Write([]byte("x")); n != 0 || !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := c.Write([]byte("y")); !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("again: %v", err)
	}
}

// A BMC that is not read keeps what it cannot send.
func TestConsoleFlood(t *testing.T) {
	t.Parallel()
	cfg, line := simWithLine(t)
	c := openConsole(t, cfg, false)
	text := strings.Repeat("0123456789abcde\n", 64<<10)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		io.WriteString(line, text)
	}()
	if _, err := c.Write([]byte("x")); err != nil { // acknowledged beside the flood
		t.Error(err)
	}
	if got := read(t, c, len(text)); got != text {
		t.Errorf("read %d characters that differ", len(got))
	}
	<-sent
}

// A BMC that stops ends its console.
func TestConsoleOfLostBMC(t *testing.T) {
	t.Parallel()
	lose := func(name string, cfg bmc.Config, stop func() error, use func(bmc.Console) error) {
		c := openConsole(t, cfg, false)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if err := use(c); !errors.Is(err, trivet.ErrUnavailable) || !strings.Contains(err.Error(), cfg.Address) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, use := range map[string]func(bmc.Console) error{
		"read":  func(c bmc.Console) error { _, err := c.Read(make([]byte, 1)); return err },
		"write": func(c bmc.Console) error { _, err := c.Write([]byte("x")); return err },
	} {
		line := bmctest.NewLine(t)
		sim, err := bmctest.StartIPMI(bmctest.NewBox(), bmctest.Options{Serial: line.Address()})
		if err != nil {
			t.Fatal(err)
		}
		lose(name, sim.Config, sim.Stop, use)
	}
	cfg, sshd := bmctest.RedfishWithLine(t, bmctest.NewBox(), bmctest.NewLine(t), false)
	lose("read by SSH", cfg, sshd.Stop, func(c bmc.Console) error { _, err := c.Read(make([]byte, 1)); return err })
}

// A console that another session has is taken only where that is asked for, and its session learns it.
func TestConsoleInUse(t *testing.T) {
	t.Parallel()
	sim, line := simWithLine(t)
	other, b, fake := goIPMIWithLine(t, 0)
	for name, tc := range map[string]struct {
		cfg   bmc.Config
		write func(string)
		owned func() bool
	}{
		"ipmi_sim": {sim, func(s string) { io.WriteString(line, s) }, nil},
		"go-ipmi": {other, func(s string) { fake.FeedRX([]byte(s)) },
			func() bool { return b.SOL.ActiveSessionID(1) != 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			first := openConsole(t, tc.cfg, false)
			_, err := bmc.OpenConsole(t.Context(), tc.cfg, false)
			if !errors.Is(err, bmc.ErrConsoleInUse) || !errors.Is(err, trivet.ErrConflict) {
				t.Fatalf("a second session: %v", err)
			}
			if !strings.Contains(err.Error(), "--take") || strings.Contains(err.Error(), tc.cfg.Password) {
				t.Errorf("an operator reads: %v", err)
			}
			go tc.write("mine")
			if got := read(t, first, 4); got != "mine" {
				t.Errorf("the first session reads %q", got)
			}
			second := openConsole(t, tc.cfg, true)
			if _, err := first.Read(make([]byte, 1)); !errors.Is(err, bmc.ErrConsoleEnded) {
				t.Errorf("the session that had it: %v", err)
			}
			first.Close() // and leaves it to the second one
			go tc.write("ours")
			if got := read(t, second, 4); got != "ours" {
				t.Errorf("the second session reads %q", got)
			}
			second.Close()
			if tc.owned != nil && tc.owned() {
				t.Error("a closed console is in use")
			}
		})
	}
}

// A BMC without serial over LAN, and protocols that have none.
func TestNoConsole(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]bmc.Config{
		"ipmi_sim without a line": bmctest.Sim(t, bmctest.NewBox()),
		"redfish":                 bmctest.Redfish(t, bmctest.NewBox()),
		"exec":                    bmctest.Exec(t, bmctest.NewBox()),
	} {
		if _, err := bmc.OpenConsole(t.Context(), cfg, true); !errors.Is(err, bmc.ErrNoConsole) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
