package bmc_test

import (
	"context"
	"crypto/rand"
	"net/netip"

	gobmc "github.com/bougou/go-ipmi/pkg/bmc"
	"github.com/bougou/go-ipmi/pkg/hal"
	"github.com/bougou/go-ipmi/pkg/hal/mock"
	"github.com/bougou/go-ipmi/pkg/server"
	"github.com/bougou/go-ipmi/pkg/transport/udp"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/trivet-project/trivet/internal/bmc"
	"github.com/trivet-project/trivet/internal/bmc/bmctest"
)

// goIPMI runs the BMC server of github.com/bougou/go-ipmi: another implementation of RMCP+ than ipmi_sim and ours,
// with cipher suite 17, which ipmi_sim lacks, and with boot flags that can be read.
func goIPMI(suite types.CipherSuiteID) func(bmctest.TB, bmctest.Machine) bmc.Config {
	return func(t bmctest.TB, m bmctest.Machine) bmc.Config {
		t.Helper()
		cfg, _ := goIPMIServer(t, suite, &chassis{HAL: mock.New(), machine: m})
		return cfg
	}
}

func goIPMIServer(t bmctest.TB, suite types.CipherSuiteID, machine hal.HAL) (bmc.Config, *gobmc.BMC) {
	t.Helper()
	conn, err := udp.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := bmc.Config{Protocol: bmc.IPMI, Address: conn.LocalAddr().String(), User: "trivet",
		Password: rand.Text()[:20], UEFI: true, Allows: netip.Addr.IsLoopback}
	b := gobmc.New(gobmc.DeviceInfo{IPMIVersion: 0x20}, [16]byte{7}, machine)
	err = b.Users.Upsert(2, func(u *gobmc.User) error {
		u.Name, u.Enabled, u.Password20 = cfg.User, true, true
		copy(u.Password[:], cfg.Password)
		u.ChannelAccess = map[uint8]gobmc.UserChannelAccess{1: {MaxPrivilege: gobmc.PrivilegeLevelOperator,
			Enabled: true}}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := server.NewServer(b, conn, server.WithCipherSuites([]types.CipherSuiteID{suite}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Serve(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		s.Close()
		<-done
	})
	return cfg, b
}

// chassis puts a Machine below go-ipmi's server.
type chassis struct {
	*mock.HAL
	machine bmctest.Machine
}

func (c *chassis) Chassis() hal.ChassisHAL {
	return control{ChassisHAL: c.HAL.Chassis(), machine: c.machine}
}

type control struct {
	hal.ChassisHAL
	machine bmctest.Machine
}

func (c control) PowerState(context.Context) (bool, error) { return c.machine.Power() == bmc.On, nil }

func (c control) SetPower(_ context.Context, on bool) error {
	if on {
		return c.machine.SetPower(bmc.On)
	}
	return c.machine.SetPower(bmc.Off)
}

func (c control) SetBootFlags(_ context.Context, flags *types.BootOptionParam_BootFlags) error {
	device := map[types.BootDeviceSelector]bmc.Device{
		types.BootDeviceSelectorForcePXE:       bmc.Network,
		types.BootDeviceSelectorForceHardDrive: bmc.Disk}[flags.BootDeviceSelector]
	if !flags.BootFlagsValid || flags.Persist || flags.BIOSBootType != types.BIOSBootTypeEFI {
		device += " with wrong flags"
	}
	return c.machine.SetNextBoot(device)
}
