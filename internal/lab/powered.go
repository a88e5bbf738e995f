package lab

import (
	"context"

	"github.com/trivet-project/trivet/internal/bmc"
	"github.com/trivet-project/trivet/internal/lab/vm"
)

// Powered is the power control of a QEMU machine, for its BMC.
type Powered struct{ Machine *vm.Machine }

// Power implements [bmctest.Machine].
func (p *Powered) Power() bmc.State {
	if p.Machine.Running() {
		return bmc.On
	}
	return bmc.Off
}

// SetPower implements [bmctest.Machine].
func (p *Powered) SetPower(s bmc.State) error {
	if s == bmc.Off {
		p.Machine.PowerOff()
		return nil
	}
	return p.Machine.PowerOn(context.Background())
}

// SetNextBoot implements [bmctest.Machine].
func (p *Powered) SetNextBoot(d bmc.Device) error {
	if d == bmc.Disk {
		p.Machine.SetBoot(vm.BootDisk)
	} else {
		p.Machine.SetBoot(vm.BootNetwork, vm.BootDisk)
	}
	return nil
}
