package vm_test

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trivet-project/trivet/internal/lab/vm"
	"github.com/trivet-project/trivet/internal/lab/vm/vmtest"
)

// A machine that QEMU refuses is not powered on, and PowerOn returns.
func TestPowerOnOfABrokenMachine(t *testing.T) {
	rack := vmtest.NewRack(t, "vm-broken")
	m, err := vm.NewMachine(t.Context(), rack.Net, vm.Config{Name: "broken", Firmware: vm.BIOS,
		MAC: net.HardwareAddr{0x52, 0x54, 0, 0x77, 2, 1}, Dir: filepath.Join(t.TempDir(), "broken"),
		Args: []string{"-device", "no-such-device"}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.PowerOn(t.Context()); err == nil || !strings.Contains(err.Error(), "power on broken") || m.Running() {
		t.Errorf("PowerOn: %v; on: %t", err, m.Running())
	}
}
