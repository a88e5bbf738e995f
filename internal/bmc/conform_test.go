package bmc_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/bougou/go-ipmi/pkg/types"
	"github.com/google/go-cmp/cmp"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/bmc"
	"github.com/trivet-project/trivet/internal/bmc/bmctest"
)

// Every implementation satisfies the contract of bmc.Client: IPMI against two BMC programs, Redfish against a simulated
// one, and exec with a program that controls a machine in memory.
func TestConformance(t *testing.T) {
	for protocol, start := range map[string]func(bmctest.TB, bmctest.Machine) bmc.Config{
		"ipmi against ipmi_sim":               bmctest.Sim,
		"ipmi 17 against go-ipmi":             goIPMI(types.CipherSuiteID17),
		"ipmi 3 against go-ipmi":              goIPMI(types.CipherSuiteID3),
		"redfish against a simulated service": bmctest.Redfish,
		"exec of a program":                   bmctest.Exec,
	} {
		for name, test := range map[string]func(*testing.T, bmc.Config, *bmctest.Box){
			"sets states":         setsStates,
			"waits for the state": waitsForState,
			"chooses next boot":   choosesNextBoot,
			"wrong password":      wrongPassword,
			"failing machine":     failingMachine,
			"ended context":       endedContext,
			"passed deadline":     passedDeadline,
			"bad arguments":       badArguments,
			"two clients":         twoClients,
		} {
			t.Run(protocol+"/"+name, func(t *testing.T) {
				t.Parallel()
				box := bmctest.NewBox()
				test(t, start(t, box), box)
			})
		}
	}
}

func open(t *testing.T, cfg bmc.Config) bmc.Client {
	t.Helper()
	c, err := bmc.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func check(t *testing.T, c bmc.Client, want bmc.State) {
	t.Helper()
	if got, err := c.Power(t.Context()); err != nil || got != want {
		t.Errorf("power: %q, %v; want %q", got, err, want)
	}
}

func set(t *testing.T, c bmc.Client, want bmc.State) {
	t.Helper()
	if err := c.SetPower(t.Context(), want); err != nil {
		t.Errorf("set power %s: %v", want, err)
	}
}

func log(t *testing.T, box *bmctest.Box, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, box.Log()); diff != "" {
		t.Errorf("done to the machine (-want +got):\n%s", diff)
	}
}

func setsStates(t *testing.T, cfg bmc.Config, box *bmctest.Box) {
	c := open(t, cfg)
	check(t, c, bmc.Off)
	set(t, c, bmc.On)
	check(t, c, bmc.On)
	set(t, c, bmc.On) // nothing to do, nothing sent
	set(t, c, bmc.Off)
	set(t, c, bmc.Off)
	check(t, c, bmc.Off)
	log(t, box, "on", "off")
}

func waitsForState(t *testing.T, cfg bmc.Config, box *bmctest.Box) {
	c := open(t, cfg)
	box.Slow(4) // the state, asked before and after the command, changes only then
	set(t, c, bmc.On)
	check(t, c, bmc.On)
	log(t, box, "on")

	box.Slow(1 << 30)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if err := c.SetPower(ctx, bmc.Off); !errors.Is(err, trivet.ErrUnknown) {
		t.Errorf("a machine that stays on: %v; want ErrUnknown", err)
	}
	log(t, box, "off")
}

func choosesNextBoot(t *testing.T, cfg bmc.Config, box *bmctest.Box) {
	c := open(t, cfg)
	for _, device := range []bmc.Device{bmc.Network, bmc.Disk} {
		if err := c.SetNextBoot(t.Context(), device); err != nil {
			t.Errorf("next boot %s: %v", device, err)
		}
	}
	log(t, box, "boot network", "boot disk")
	check(t, c, bmc.Off)
}

func wrongPassword(t *testing.T, cfg bmc.Config, box *bmctest.Box) {
	for name, corrupt := range map[string]func(*bmc.Config){
		"password": func(c *bmc.Config) { c.Password = "hunter2" },
		"user":     func(c *bmc.Config) { c.User = "nobody" },
	} {
		bad := cfg
		corrupt(&bad)
		_, err := bmc.Open(t.Context(), bad)
		if !errors.Is(err, trivet.ErrUnauthenticated) {
			t.Fatalf("wrong %s: %v; want ErrUnauthenticated", name, err)
		}
		text := err.Error()
		if strings.Contains(text, bad.Password) || !strings.Contains(text, cfg.Address) ||
			!strings.Contains(text, "check user and password") {
			t.Errorf("an operator reads: %s", text)
		}
	}
	log(t, box)
}

func failingMachine(t *testing.T, cfg bmc.Config, box *bmctest.Box) {
	c := open(t, cfg)
	box.Fail(errors.New("no power supply"))
	if err := c.SetPower(t.Context(), bmc.On); err == nil {
		t.Error("set power of a failing machine: no error")
	}
	if err := c.SetNextBoot(t.Context(), bmc.Network); err == nil {
		t.Error("set boot of a failing machine: no error")
	}
	box.Fail(nil)
	set(t, c, bmc.On)
	log(t, box, "on", "boot network", "on")
}

// unnoticed is a context whose deadline has passed, which it has not noticed: its process was paused.
type unnoticed struct{ context.Context }

func (unnoticed) Deadline() (time.Time, bool) { return time.Now().Add(-time.Second), true }

func passedDeadline(t *testing.T, cfg bmc.Config, box *bmctest.Box) {
	c := open(t, cfg)
	ctx := unnoticed{t.Context()}
	for what, err := range map[string]error{
		"power on":      c.SetPower(ctx, bmc.On),
		"set next boot": c.SetNextBoot(ctx, bmc.Network),
	} {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", what, err)
		}
	}
	log(t, box)
}

func endedContext(t *testing.T, cfg bmc.Config, box *bmctest.Box) {
	c := open(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.SetPower(ctx, bmc.On); !errors.Is(err, context.Canceled) {
		t.Errorf("set power: %v", err)
	}
	if err := c.SetNextBoot(ctx, bmc.Network); !errors.Is(err, context.Canceled) {
		t.Errorf("set boot: %v", err)
	}
	if _, err := bmc.Open(ctx, cfg); !errors.Is(err, context.Canceled) {
		t.Errorf("open: %v", err)
	}
	log(t, box)
	set(t, c, bmc.On) // the client can be used again
	log(t, box, "on")
}

func badArguments(t *testing.T, cfg bmc.Config, box *bmctest.Box) {
	c := open(t, cfg)
	if err := c.SetPower(t.Context(), bmc.Changing); !errors.Is(err, trivet.ErrInvalid) {
		t.Errorf("set power changing: %v", err)
	}
	if err := c.SetNextBoot(t.Context(), "floppy"); !errors.Is(err, trivet.ErrInvalid) {
		t.Errorf("next boot floppy: %v", err)
	}
	log(t, box)
}

// Two heads may drive one BMC for a while.
func twoClients(t *testing.T, cfg bmc.Config, box *bmctest.Box) {
	a, b := open(t, cfg), open(t, cfg)
	set(t, a, bmc.On)
	set(t, b, bmc.On)
	set(t, b, bmc.Off)
	check(t, a, bmc.Off)
	log(t, box, "on", "off")
}
