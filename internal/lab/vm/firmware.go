package vm

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// Firmware is the firmware of a machine.
type Firmware string

// The kinds of firmware.
const (
	BIOS     Firmware = "bios"      // SeaBIOS, network boot by the iPXE ROM of the network card
	UEFIPXE  Firmware = "uefi-pxe"  // OVMF, its own PXE client (TFTP)
	UEFIHTTP Firmware = "uefi-http" // OVMF, its own HTTP boot client
)

// BootDevice is a kind of device that firmware boots from.
type BootDevice string

// The boot devices.
const (
	BootNetwork BootDevice = "network"
	BootDisk    BootDevice = "disk"
)

const ovmf = "/usr/share/OVMF"

// makeVars creates a machine's copy of OVMF's variables.
func (f Firmware) makeVars(path string) error {
	if f == BIOS {
		return nil
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	in, err := os.Open(filepath.Join(ovmf, "OVMF_VARS_4M.fd"))
	if err != nil {
		return fmt.Errorf("firmware: %w; try %s", err, Packages)
	}
	defer in.Close()
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// args returns QEMU's arguments. QEMU must not read the host's configuration, nor have a device that is not listed
// here. Emulating an older processor takes a fifth less time; without graphics SeaBIOS uses the serial port.
func (m *Machine) args() []string {
	args := []string{
		"-name", m.Name, "-nodefaults", "-no-user-config", "-display", "none",
		"-machine", "q35,accel=tcg,graphics=off", "-cpu", "Nehalem", "-m", strconv.Itoa(cmp.Or(m.MemoryMB, 1024)),
		"-smp", strconv.Itoa(cmp.Or(m.CPUs, 1)), "-rtc", "base=utc",
		"-chardev", "stdio,id=serial,signal=off", "-serial", "chardev:serial",
		"-chardev", "socket,id=qmp,fd=3", "-mon", "chardev=qmp,mode=control",
		"-object", "rng-random,id=rng,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=rng",
	}
	if m.UUID != "" {
		args = append(args, "-uuid", m.UUID)
	}
	args = append(args, "-smbios", "type=1,manufacturer=Trivet,product=Lab,serial="+m.Config.Serial)
	args = append(args, m.firmwareArgs()...)
	args = append(args, m.networkArgs()...)
	for i, d := range m.Disks {
		args = append(args, m.diskArgs(i, d)...)
	}
	if m.Kernel != "" {
		args = append(args, "-kernel", m.Kernel, "-initrd", m.Initrd, "-append", m.Append)
	}
	return append(args, m.Config.Args...)
}

func (m *Machine) firmwareArgs() []string {
	if m.Firmware == BIOS {
		return nil
	}
	code := filepath.Join(ovmf, "OVMF_CODE_4M.fd")
	args := []string{
		"-drive", "if=pflash,unit=0,format=raw,readonly=on,file=" + code,
		"-drive", "if=pflash,unit=1,format=raw,file=" + m.varsPath(),
		"-fw_cfg", "name=opt/org.tianocore/IPv6PXESupport,string=n",
	}
	if m.Firmware == UEFIHTTP { // without PXE, the network card's boot entry is HTTP
		args = append(args, "-fw_cfg", "name=opt/org.tianocore/IPv4PXESupport,string=n")
	}
	return args
}

// networkArgs returns the arguments of the network card. It has a ROM for BIOS only: OVMF has its own driver, as real
// firmware does.
func (m *Machine) networkArgs() []string {
	device := cmp.Or(m.NIC, "virtio-net-pci") + ",netdev=net0,mac=" + m.MAC.String() + m.bootIndex(BootNetwork, 0)
	if m.Firmware != BIOS {
		device += ",romfile="
	}
	port := "tap,ifname=" + m.tap + ",script=no,downscript=no"
	if m.Frames != nil {
		port = "dgram,local.type=fd,local.str=4"
	}
	return []string{"-netdev", port + ",id=net0", "-device", device}
}

// bootIndex returns the index of a device in the boot order; the firmware does not boot from a device without one.
func (m *Machine) bootIndex(d BootDevice, nth int) string {
	if i := slices.Index(m.boot, d); i >= 0 {
		return ",bootindex=" + strconv.Itoa(1+100*i+nth)
	}
	return ""
}

// diskArgs returns the arguments of a disk. Writes survive a crash of the machine, but not of the host, for speed.
func (m *Machine) diskArgs(i int, d Disk) []string {
	id, format := "disk"+strconv.Itoa(i), "raw"
	if d.Base != "" {
		format = "qcow2"
	}
	device := map[string]string{
		"": "virtio-blk-pci", "virtio": "virtio-blk-pci", "nvme": "nvme", "scsi": "scsi-hd,bus=scsi0.0",
		"sata": "ide-hd",
	}[d.Bus]
	serial := cmp.Or(d.Serial, m.Name+"-"+strconv.Itoa(i))
	device += ",drive=" + id + ",serial=" + serial + m.bootIndex(BootDisk, i)
	file := "file=" + d.Path
	if d.FailAt > 0 {
		file = "file.driver=blkdebug,file.config=" + d.rules() + ",file.image.driver=file,file.image.filename=" + d.Path
	}
	args := []string{"-drive", "if=none,id=" + id + ",format=" + format + ",cache=unsafe,discard=unmap," + file}
	if d.Bus == "scsi" && i == slices.IndexFunc(m.Disks, func(d Disk) bool { return d.Bus == "scsi" }) {
		args = append(args, "-device", "virtio-scsi-pci,id=scsi0")
	}
	return append(args, "-device", device)
}
