package cli

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/bmc/bmctest"
)

// scriptTB makes a script what simulated BMCs need of a test.
type scriptTB struct{ *testscript.TestScript }

func (scriptTB) Helper()              {}
func (s scriptTB) Fatal(args ...any)  { s.Fatalf("%v", args) }
func (s scriptTB) Cleanup(end func()) { s.Defer(end) }

// bmcCommand creates a machine with a simulated BMC, which is off: bmc MACHINE MAC [broken].
func bmcCommand(ts *testscript.TestScript, _ bool, args []string) {
	h := ts.Value(headKey{}).(*head)
	c, err := h.client()
	ts.Check(err)
	defer c.Close()
	box := bmctest.NewBox()
	if len(args) > 2 {
		box.Fail(errors.New("the fuse is gone"))
	}
	cfg := bmctest.Redfish(scriptTB{ts}, box)
	ctx := context.Background()
	_, err = client.Of[trivet.Secret](c).Create(ctx, &trivet.Secret{
		Meta: trivet.Meta{Project: trivet.DefaultProject, Name: args[0]},
		Spec: trivet.SecretSpec{Data: map[string]string{"user": cfg.User, "password": cfg.Password},
			Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Insecure: true}})
	ts.Check(err)
	_, err = client.Of[trivet.Machine](c).Create(ctx, &trivet.Machine{Meta: trivet.Meta{Name: args[0]},
		Spec: trivet.MachineSpec{NICs: []trivet.NIC{{MAC: args[1]}},
			BMC: &trivet.BMC{Protocol: cfg.Protocol, Address: cfg.Address, Secret: args[0]}}})
	ts.Check(err)
}

func TestPowerText(t *testing.T) {
	for _, tc := range [][3]string{
		{"on", "on", "machine/m1 is on"}, {"cycle", "on", "machine/m1 is on"}, {"off", "off", "machine/m1 is off"},
		{"on", "off", "machine/m1: the request for power on ended; its BMC last reported off"},
		{"cycle", "", "machine/m1: the request for power cycle ended; its BMC last reported nothing"},
	} {
		if got := powerText("m1", tc[0], tc[1]); got != tc[2] {
			t.Errorf("%s, %q: %s", tc[0], tc[1], got)
		}
	}
}
