package vm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/trivet-project/trivet"
)

// Config says what a machine is made of.
type Config struct {
	Name     string
	MAC      net.HardwareAddr
	Firmware Firmware
	Dir      string // its folder: serial console, NVRAM
	MemoryMB int    // 0: 1024
	CPUs     int    // 0: 1
	UUID     string // in SMBIOS; empty: all zero
	Serial   string // number in SMBIOS
	NIC      string // QEMU's model; empty: virtio-net-pci. BIOS needs its iPXE ROM: e1000e has one too
	Disks    []Disk
	// Frames is one of a pair of datagram sockets that carry the card's frames, one a datagram; nil: the card has a
	// port of the network's switch. Whoever has the other one is the cable, and sees, holds and loses what passes.
	Frames *os.File
	// Kernel, Initrd and Append boot a kernel at once, without firmware's own boot.
	Kernel, Initrd, Append string
	// Args are more arguments for QEMU, such as those that connect a BMC.
	Args []string
}

// Disk is a disk in a file.
type Disk struct {
	Path   string
	SizeMB int    // it is made with this size if Path is missing; 0: it must exist
	Base   string // if set, a raw image that stays as it is; Path then is a qcow2 file of what differs
	Serial string // as the machine sees it
	Bus    string // "virtio" (the default), "nvme", "scsi" or "sata"
}

// Machine is a machine that is plugged in. It is off at first.
type Machine struct {
	Config
	Console *Serial
	net     *Network
	tap     string // the port; empty: it has a Cable

	mu sync.Mutex
	// guards following
	proc *process // nil, or ended: it is off
	mon  *qmp
	boot []BootDevice
}

// NewMachine plugs in a machine and makes its disks and NVRAM. It tries the network first at each boot, then its disks.
func NewMachine(ctx context.Context, n *Network, c Config) (*Machine, error) {
	if !nameForm.MatchString(c.Name) || len(c.MAC) != 6 || c.Dir == "" {
		return nil, fmt.Errorf("lab machine %q: %w: name, MAC and folder must be given", c.Name, trivet.ErrInvalid)
	}
	m := &Machine{Config: c, net: n, boot: []BootDevice{BootNetwork, BootDisk}}
	if err := m.make(ctx); err != nil {
		return nil, fmt.Errorf("lab machine %s: %w", c.Name, err)
	}
	return m, nil
}

func (m *Machine) make(ctx context.Context) error {
	if err := os.MkdirAll(m.Dir, 0o755); err != nil {
		return err
	}
	for _, d := range m.Disks {
		if err := d.make(ctx); err != nil {
			return err
		}
	}
	if err := m.Firmware.makeVars(m.varsPath()); err != nil {
		return err
	}
	var err error
	if m.Frames == nil {
		if m.tap, err = m.net.addPort(ctx); err != nil {
			return err
		}
	}
	m.Console, err = newSerial(filepath.Join(m.Dir, "serial.log"))
	return err
}

func (m *Machine) varsPath() string { return filepath.Join(m.Dir, "efivars.fd") }

func (d Disk) make(ctx context.Context) error {
	if _, err := os.Stat(d.Path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if d.Base != "" {
		args := []string{"create", "-q", "-f", "qcow2", "-F", "raw", "-b", d.Base, d.Path}
		if d.SizeMB > 0 {
			args = append(args, strconv.Itoa(d.SizeMB)+"M")
		}
		if out, err := exec.CommandContext(ctx, "qemu-img", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("make disk %s: %w: %s", d.Path, err, out)
		}
		return nil
	}
	if d.SizeMB <= 0 {
		return fmt.Errorf("disk %s: %w", d.Path, trivet.ErrNotFound)
	}
	f, err := os.Create(d.Path)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(int64(d.SizeMB)<<20), f.Close())
}

// SetBoot says in which order the firmware tries its devices, from the next power-on. Those not named are not tried.
func (m *Machine) SetBoot(order ...BootDevice) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.boot = order
}

// Running says whether the machine has power. One that powered itself off has not.
func (m *Machine) Running() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.running()
}

func (m *Machine) running() bool { return m.proc != nil && m.proc.running() }

// PowerOn starts the machine; if it runs, nothing happens. ctx bounds the start, not the machine's life.
func (m *Machine) PowerOn(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running() {
		return nil
	}
	mon, theirs, err := qmpPair()
	if err != nil {
		return err
	}
	defer theirs.Close()
	cmd := exec.Command("qemu-system-x86_64", m.args()...)
	cmd.Stdout, cmd.Stderr = m.Console, m.Console // QEMU's own complaints belong to the story
	cmd.ExtraFiles = []*os.File{theirs}           // fd 3
	if m.Frames != nil {
		cmd.ExtraFiles = append(cmd.ExtraFiles, m.Frames) // fd 4
	}
	proc, err := start(m.net, cmd)
	if err != nil {
		mon.close()
		return fmt.Errorf("power on %s: %w; try %s", m.Name, err, Packages)
	}
	if err := mon.greet(ctx); err != nil {
		proc.kill()
		mon.close()
		return fmt.Errorf("power on %s: %w", m.Name, err)
	}
	m.powerOff()
	m.proc, m.mon = proc, mon
	return nil
}

// PowerOff takes the power away at once, as a BMC or a pulled plug does; if the machine is off, nothing happens.
func (m *Machine) PowerOff() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.powerOff()
}

func (m *Machine) powerOff() {
	if m.proc == nil {
		return
	}
	m.proc.kill()
	m.mon.close()
	m.proc, m.mon = nil, nil
}

// Reset restarts a running machine at once, as its reset button does.
func (m *Machine) Reset(ctx context.Context) error { return m.command(ctx, "reset", "system_reset") }

// Pause lets the machine stand still, its clocks too, until Resume: nothing that it waits for runs out.
func (m *Machine) Pause(ctx context.Context) error { return m.command(ctx, "pause", "stop") }

// Resume lets a machine that stands still go on.
func (m *Machine) Resume(ctx context.Context) error { return m.command(ctx, "resume", "cont") }

// PressPowerButton presses the power button shortly; the operating system decides what follows.
func (m *Machine) PressPowerButton(ctx context.Context) error {
	return m.command(ctx, "press power", "system_powerdown")
}

func (m *Machine) command(ctx context.Context, what, command string) error {
	m.mu.Lock()
	mon, on := m.mon, m.running()
	m.mu.Unlock()
	if !on {
		return fmt.Errorf("%s %s: %w", what, m.Name, errOff)
	}
	return mon.run(ctx, command, nil, nil)
}

// WaitOff waits until the machine has no power.
func (m *Machine) WaitOff(ctx context.Context) error {
	m.mu.Lock()
	proc := m.proc
	m.mu.Unlock()
	if proc == nil {
		return nil
	}
	select {
	case <-proc.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s did not power off: %w", m.Name, ctx.Err())
	}
}

// Close powers the machine off and closes its console's file.
func (m *Machine) Close() error {
	m.PowerOff()
	return m.Console.close()
}
