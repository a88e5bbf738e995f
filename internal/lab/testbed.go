package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/bmc/bmctest"
	"github.com/trivet-project/trivet/internal/lab/vm"
)

// Testbed is QEMU machines with BMCs in a network namespace, for manual tests of a head.
type Testbed struct {
	Dir              string // disks, consoles and the machines' records
	Name             string // of the namespace
	Address          string // of the head on the machines' network, with its prefix
	Firmware         []string
	DiskMB, MemoryMB int
	Out              io.Writer
}

// Run creates the machines and serves their BMCs until ctx ends. The machines are off until a BMC powers them on.
func (r *Testbed) Run(ctx context.Context) (err error) {
	address, err := netip.ParsePrefix(r.Address)
	if err != nil {
		return &trivet.FieldError{Field: "--address", Problem: "must be an address with a prefix, such as 10.77.0.1/24"}
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: network namespaces require root", trivet.ErrForbidden)
	}
	if err := os.MkdirAll(r.Dir, 0o755); err != nil {
		return err
	}
	network, err := vm.NewNetwork(ctx, r.Name, address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, network.Close()) }()
	var records strings.Builder
	fmt.Fprintf(&records, networkRecord, address.Masked(), nth(address, 100), nth(address, 200), address.Addr())
	for i, firmware := range r.Firmware {
		m, err := r.addMachine(ctx, network, i, vm.Firmware(firmware))
		if err != nil {
			return err
		}
		defer m.Close()
		sim, err := bmctest.StartIPMI(&Powered{m}, bmctest.Options{
			Address: address.Addr().String(), Port: 6230 + i, Wrap: []string{"ip", "netns", "exec", r.Name},
		})
		if err != nil {
			return fmt.Errorf("BMC of %s: %w", m.Name, err)
		}
		defer func() { _ = sim.Stop() }()
		own := nth(address, byte(11+i))
		fmt.Fprintf(&records, machineRecord, m.Name, sim.Config.User, sim.Config.Password, address.Addr(), m.Name, firmware, m.MAC, own,
			sim.Config.Address, m.Name)
		fmt.Fprintf(r.Out, "%s: %s, MAC %s, address %s, BMC %s, console %s\n", m.Name, firmware, m.MAC, own,
			sim.Config.Address,
			filepath.Join(m.Dir, "serial.log"))
	}
	path := filepath.Join(r.Dir, "machines.yaml")
	if err := os.WriteFile(path, []byte(strings.TrimPrefix(records.String(), "---\n")), 0o600); err != nil {
		return err
	}
	fmt.Fprintf(r.Out, "The records are in %s. Start a head with:\n"+
		"  ip netns exec %s trivet server --data-dir DIR --dhcp lab0\n",
		path, r.Name)
	<-ctx.Done()
	return nil
}

const networkRecord = `---
kind: Network
name: lab
spec:
  cidr: %s
  ranges: [{from: %s, to: %s}]
  gateway: %s
`

const machineRecord = `---
kind: Secret
name: bmc-%s
spec:
  data: {user: %q, password: %q}
  addresses: [%s/32]
---
kind: Machine
name: %s
labels: {firmware: %q}
spec:
  arch: amd64
  disk: {path: /dev/vda}
  nics: [{mac: %q, address: %q}]
  bmc: {protocol: ipmi, address: %q, secret: bmc-%s}
`

// nth returns the n-th address of a network.
func nth(p netip.Prefix, n byte) netip.Addr {
	a := p.Masked().Addr().As4()
	a[3] += n
	return netip.AddrFrom4(a)
}

func (r *Testbed) addMachine(ctx context.Context, network *vm.Network, i int,
	firmware vm.Firmware) (*vm.Machine, error) {
	name := fmt.Sprintf("lab%d", i+1)
	mac := net.HardwareAddr{0x52, 0x54, 0, 0x77, 1, byte(i + 1)}
	return vm.NewMachine(ctx, network, vm.Config{
		Name: name, MAC: mac, Firmware: firmware, Dir: filepath.Join(r.Dir, name), MemoryMB: r.MemoryMB,
		Serial: "LAB-" + name,
		Disks:  []vm.Disk{{Path: filepath.Join(r.Dir, name+".disk"), SizeMB: r.DiskMB}},
	})
}
