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

// Config configures a machine.
type Config struct {
	Name     string
	MAC      net.HardwareAddr
	Firmware Firmware
	Dir      string // the directory for the serial console and the NVRAM
	MemoryMB int    // 0: 1024
	CPUs     int    // 0: 1
	UUID     string // in SMBIOS; empty: zero
	Serial   string // number in SMBIOS
	NIC      string // QEMU's model; empty: virtio-net-pci. BIOS needs its iPXE ROM: e1000e has one too
	Disks    []Disk
	// Frames is one end of a pair of datagram sockets that carry the card's frames, one per datagram; nil: the card is
	// connected to a port of the network's switch. The other end is the cable, which may delay and drop frames.
	Frames *os.File
	// Kernel, Initrd and Append boot a kernel directly.
	Kernel, Initrd, Append string
	// Args are more arguments for QEMU, such as those that connect a BMC.
	Args []string
}

// Disk is a disk in a file.
type Disk struct {
	Path   string
	SizeMB int    // the size with which it is created if Path does not exist; 0: it must exist
	Base   string // if set, a raw image that is not modified; Path is a qcow2 file of the differences
	Serial string // as the machine sees it
	Bus    string // "virtio" (the default), "nvme", "scsi" or "sata"
	// FailAt is an offset at which each write fails with EIO, of a disk without Base; 0: none does.
	FailAt int64
}

// Machine is a machine that is connected to the network. It is off at first.
type Machine struct {
	Config
	Console *Serial
	net     *Network
	tap     string // of the port; empty: it has Frames

	mu   sync.Mutex
	proc *process // guarded by mu, as all below; nil, or ended: it is off
	mon  *qmp
	boot []BootDevice
	ons  int // how often it was powered on
}

// NewMachine connects a machine and creates its disks and NVRAM. At each boot it tries the network first, then its
// disks.
func NewMachine(ctx context.Context, n *Network, c Config) (*Machine, error) {
	if !nameForm.MatchString(c.Name) || len(c.MAC) != 6 || c.Dir == "" {
		return nil, fmt.Errorf("lab machine %q: %w: name, MAC and directory are required", c.Name, trivet.ErrInvalid)
	}
	m := &Machine{Config: c, net: n, boot: []BootDevice{BootNetwork, BootDisk}}
	if err := m.create(ctx); err != nil {
		return nil, fmt.Errorf("lab machine %s: %w", c.Name, err)
	}
	return m, nil
}

func (m *Machine) create(ctx context.Context) error {
	if err := os.MkdirAll(m.Dir, 0o755); err != nil {
		return err
	}
	for _, d := range m.Disks {
		if err := d.create(ctx); err != nil {
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

func (d Disk) create(ctx context.Context) error {
	if _, err := os.Stat(d.Path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if d.Base != "" {
		args := []string{"create", "-q", "-f", "qcow2", "-F", "raw", "-b", d.Base, d.Path}
		if d.SizeMB > 0 {
			args = append(args, strconv.Itoa(d.SizeMB)+"M")
		}
		if out, err := exec.CommandContext(ctx, "qemu-img", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("create disk %s: %w: %s", d.Path, err, out)
		}
		return nil
	}
	if d.SizeMB <= 0 {
		return fmt.Errorf("disk %s: %w", d.Path, trivet.ErrNotFound)
	}
	if d.FailAt > 0 {
		rules := fmt.Sprintf("[inject-error]\nevent = \"none\"\niotype = \"write\"\nsector = \"%d\"\nerrno = \"5\"\n", d.FailAt/sectorSize)
		if err := os.WriteFile(d.rules(), []byte(rules), 0o644); err != nil {
			return err
		}
	}
	f, err := os.Create(d.Path)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(int64(d.SizeMB)<<20), f.Close())
}

// sectorSize is the unit of QEMU's blkdebug.
const sectorSize = 512

// rules is the file by which QEMU's blkdebug lets writes fail.
func (d Disk) rules() string { return d.Path + ".blkdebug" }

// SetBoot sets the boot order of the firmware from the next power-on. It does not try other devices.
func (m *Machine) SetBoot(order ...BootDevice) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.boot = order
}

// Running reports whether the machine is on. One that powered itself off is not.
func (m *Machine) Running() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.running()
}

func (m *Machine) running() bool { return m.proc != nil && m.proc.running() }

// PowerOn starts the machine if it is off. ctx bounds the start only.
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
	cmd := exec.Command("qemu-system-x86_64", m.args()...)
	cmd.Stdout, cmd.Stderr = m.Console, m.Console // with QEMU's own errors
	cmd.ExtraFiles = []*os.File{theirs}           // fd 3
	if m.Frames != nil {
		cmd.ExtraFiles = append(cmd.ExtraFiles, m.Frames) // fd 4
	}
	proc, err := start(m.net, cmd)
	theirs.Close() // a QEMU that ends closes the last one, and mon sees that
	if err != nil {
		mon.close()
		return fmt.Errorf("power on %s: %w; try %s", m.Name, err, Packages)
	}
	if err := mon.negotiate(ctx); err != nil {
		proc.kill()
		mon.close()
		return fmt.Errorf("power on %s: %w", m.Name, err)
	}
	m.powerOff()
	m.proc, m.mon = proc, mon
	m.ons++
	return nil
}

// PowerOff turns the machine off immediately, as a BMC does, if it is on.
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

// Reset restarts a running machine immediately, as its reset button does.
func (m *Machine) Reset(ctx context.Context) error { return m.command(ctx, "reset", "system_reset") }

// Starts returns how often the machine, which is on, was powered on, and how often it was reset since then: by its
// button, by its system or by its firmware.
func (m *Machine) Starts(ctx context.Context) (ons, resets int, err error) {
	m.mu.Lock()
	mon, on, ons := m.mon, m.running(), m.ons
	m.mu.Unlock()
	if !on {
		return ons, 0, fmt.Errorf("starts of %s: %w", m.Name, errOff)
	}
	resets, err = mon.countResets(ctx)
	return ons, resets, err
}

// Pause stops the machine with its clocks until Resume, so that none of its timeouts expires.
func (m *Machine) Pause(ctx context.Context) error { return m.command(ctx, "pause", "stop") }

// Resume continues a paused machine.
func (m *Machine) Resume(ctx context.Context) error { return m.command(ctx, "resume", "cont") }

// PressPowerButton presses the power button shortly; the operating system decides what to do.
func (m *Machine) PressPowerButton(ctx context.Context) error {
	return m.command(ctx, "press power", "system_powerdown")
}

func (m *Machine) command(ctx context.Context, op, command string) error {
	m.mu.Lock()
	mon, on := m.mon, m.running()
	m.mu.Unlock()
	if !on {
		return fmt.Errorf("%s %s: %w", op, m.Name, errOff)
	}
	return mon.run(ctx, command, nil, nil)
}

// WaitOff waits until the machine is off.
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
