package bmc_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/bmc"
	"github.com/trivet-project/trivet/internal/bmc/bmctest"
	"github.com/trivet-project/trivet/internal/testhead"
)

// A BMC that was restarted has forgotten its sessions; the client makes a new one.
func TestIPMISurvivesTheRestartOfItsBMC(t *testing.T) {
	box := bmctest.NewBox()
	at := bmctest.Options{Address: testhead.NewAddress(), Port: 6230} // no other program takes the port meanwhile
	sim, err := bmctest.StartIPMI(box, at)
	if err != nil {
		t.Fatal(err)
	}
	c := open(t, sim.Config)
	check(t, c, bmc.Off)
	if err := sim.Stop(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if state, err := c.Power(ctx); !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("of a stopped BMC: %q, %v", state, err)
	}
	at.Password = sim.Config.Password
	if sim, err = bmctest.StartIPMI(box, at); err != nil {
		t.Fatal(err)
	}
	set(t, c, bmc.On)
	c.Close()
	if err := sim.Stop(); err != nil {
		t.Error(err)
	}
	log(t, box, "on")
}

func TestIPMIRefusesBadConfigs(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  bmc.Config
		want error
	}{
		"long user":     {bmc.Config{Address: "127.0.0.1", User: strings.Repeat("u", 17)}, trivet.ErrInvalid},
		"long password": {bmc.Config{Address: "127.0.0.1", Password: strings.Repeat("p", 21)}, trivet.ErrInvalid},
		"no address":    {bmc.Config{}, trivet.ErrInvalid},
		"bad port":      {bmc.Config{Address: "127.0.0.1:http"}, trivet.ErrInvalid},
		"a URL":         {bmc.Config{Address: "https://127.0.0.1"}, trivet.ErrInvalid},
		"no BMC there":  {bmc.Config{Address: "127.0.0.1:1"}, trivet.ErrUnavailable},
	} {
		c.cfg.Protocol, c.cfg.Allows = bmc.IPMI, netip.Addr.IsLoopback
		if _, err := bmc.Open(t.Context(), c.cfg); !errors.Is(err, c.want) {
			t.Errorf("%s: %v; want %v", name, err, c.want)
		}
	}
	if _, err := bmc.Open(t.Context(), bmc.Config{Protocol: "smoke signals"}); !errors.Is(err, trivet.ErrInvalid) {
		t.Errorf("unknown protocol: %v", err)
	}
}
