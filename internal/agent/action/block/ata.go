package block

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ATA erases a disk by the security commands of ATA (ACS-3), through the pass-through of SCSI (SAT-3): disks on a SATA
// port, or on a SAS controller.
type ATA struct{ pass pass }

// pass sends a SCSI command to a disk, with a buffer that it reads or writes.
type pass func(cdb *[16]byte, direction int32, data []byte, timeout time.Duration) error

// ATA returns the device as a disk of ATA. It is not known yet whether it is one. Bridges of USB are left alone: many
// lose disks at these commands.
func (d *Device) ATA() (*ATA, error) {
	if err := d.isNotUSB(); err != nil {
		return nil, err
	}
	return &ATA{d.scsi}, nil
}

// isNotUSB returns nil for a disk that is not connected by USB.
func (d *Device) isNotUSB() error {
	real, err := filepath.EvalSymlinks(d.path)
	if err == nil {
		real, err = filepath.EvalSymlinks("/sys/class/block/" + filepath.Base(real))
	}
	if err == nil && strings.Contains(real, "/usb") {
		err = fmt.Errorf("%s is connected by USB", d.path)
	}
	return err
}

// sgHeader is struct sg_io_hdr of scsi/sg.h, on 64 bits.
type sgHeader struct {
	Interface, Direction       int32
	CommandBytes, SenseBytes   uint8
	_                          uint16 // pieces of the buffer
	DataBytes                  uint32
	Data, Command, Sense       uint64 // addresses
	TimeoutMS, Flags           uint32
	_                          int32
	_                          uint32 // alignment
	_                          uint64
	Status, _, _, SenseWritten uint8
	HostStatus, DriverStatus   uint16
	Residual                   int32
	DurationMS, Info           uint32
	_                          uint32 // alignment
}

// Numbers of scsi/sg.h.
const (
	sgIO      = 0x2285
	sgNone    = -1
	sgToDev   = -2
	sgFromDev = -3
)

// scsi sends a SCSI command.
func (d *Device) scsi(cdb *[16]byte, direction int32, data []byte, timeout time.Duration) error {
	var pinned runtime.Pinner
	defer pinned.Unpin()
	sense := make([]byte, 64)
	pinned.Pin(cdb)
	pinned.Pin(&sense[0])
	h := sgHeader{Interface: 'S', Direction: direction, CommandBytes: commandBytes(cdb[0]),
		SenseBytes: uint8(len(sense)), TimeoutMS: uint32(timeout.Milliseconds()),
		Command: uint64(uintptr(unsafe.Pointer(cdb))), Sense: uint64(uintptr(unsafe.Pointer(&sense[0])))}
	if len(data) > 0 {
		pinned.Pin(&data[0])
		h.Data, h.DataBytes = uint64(uintptr(unsafe.Pointer(&data[0]))), uint32(len(data))
	}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, d.file.Fd(), sgIO, uintptr(unsafe.Pointer(&h)))
	if errno != 0 {
		return errno
	}
	return h.outcome(sense)
}

// commandBytes returns how long a SCSI command is, by its code.
func commandBytes(code byte) uint8 {
	switch code >> 5 {
	case 0:
		return 6
	case 1, 2:
		return 10
	case 5:
		return 12
	default:
		return 16
	}
}

// outcome returns the error of a command that was sent.
func (h *sgHeader) outcome(sense []byte) error {
	const hasSense = 0x08
	if h.Status == 0 && h.HostStatus == 0 && h.DriverStatus&^hasSense == 0 {
		return nil
	}
	if s := senseError(sense[:min(len(sense), int(h.SenseWritten))]); s.isKnown() {
		return s
	}
	return fmt.Errorf("status %#x, host %#x, driver %#x", h.Status, h.HostStatus, h.DriverStatus)
}

// Commands of ATA.
const (
	ataIdentify     = 0xec
	ataSetPassword  = 0xf1
	ataErasePrepare = 0xf3
	ataEraseUnit    = 0xf4
	ataDisable      = 0xf6 // the password
)

const (
	ataTimeout = 15 * time.Second
	ataSector  = 512
)

// command is ATA PASS-THROUGH (16) of a command without an address, with one sector of data in a direction or none.
func command(code byte, direction int32) *[16]byte {
	const noData, in, out = 3 << 1, 4 << 1, 5 << 1
	cdb := &[16]byte{0: 0x85, 1: noData, 14: code}
	if direction == sgNone {
		return cdb
	}
	const bySectors, countHasIt, fromDevice = 1 << 2, 2, 1 << 3
	cdb[1], cdb[2], cdb[6] = out, bySectors|countHasIt, 1
	if direction == sgFromDev {
		cdb[1] = in
		cdb[2] |= fromDevice
	}
	return cdb
}

// security is what a disk reports of its security feature.
type security struct {
	supported, enabled, locked, frozen, expired bool
	eraseTime                                   time.Duration // the disk's estimate; 0: unknown
}

func securityOf(identify []byte) (s security) {
	word := func(n int) uint16 { return binary.LittleEndian.Uint16(identify[2*n:]) }
	status := word(128)
	s.supported = word(82)&(1<<1) != 0 && status&(1<<0) != 0
	s.enabled, s.locked, s.frozen = status&(1<<1) != 0, status&(1<<2) != 0, status&(1<<3) != 0
	s.expired = status&(1<<4) != 0
	minutes := 2 * time.Duration(word(89)&0xff)
	if word(89)&(1<<15) != 0 { // the extended format
		minutes = 2 * time.Duration(word(89)&0x7fff)
	}
	s.eraseTime = minutes * time.Minute
	return s
}

func (a *ATA) identify() (security, error) {
	data := make([]byte, ataSector)
	if err := a.pass(command(ataIdentify, sgFromDev), sgFromDev, data, ataTimeout); err != nil {
		return security{}, fmt.Errorf("identify: %w", err)
	}
	return securityOf(data), nil
}

// erasePassword is set for the time of an erase, which needs one. A disk that lost power meanwhile is locked by it:
// the next erase uses it again.
const erasePassword = "trivet"

// withPassword is the sector of a command that takes the user password.
func withPassword() []byte {
	data := make([]byte, ataSector) // identifier user, level high, erase mode normal
	copy(data[2:34], erasePassword)
	return data
}

// Erase erases every sector that the disk has, also reallocated ones. It blocks until the disk has done it, which may
// take hours: estimate gets the disk's own estimate. A disk that refuses is left without a password.
func (a *ATA) Erase(estimate func(time.Duration)) error {
	s, err := a.identify()
	switch {
	case err != nil:
		return err
	case !s.supported:
		return errors.New("the disk does not support secure erase")
	case s.frozen:
		return errors.New("the firmware has frozen the disk's security until the next loss of its power")
	case s.expired:
		return errors.New("wrong passwords were tried too often; the disk must lose its power first")
	}
	estimate(s.eraseTime)
	if !s.enabled {
		if err := a.pass(command(ataSetPassword, sgToDev), sgToDev, withPassword(), ataTimeout); err != nil {
			return fmt.Errorf("set a password: %w", err)
		}
	}
	const least, most = time.Hour, 48 * time.Hour
	err = a.pass(command(ataErasePrepare, sgNone), sgNone, nil, ataTimeout)
	if err == nil {
		timeout := min(max(2*s.eraseTime, least), most)
		err = a.pass(command(ataEraseUnit, sgToDev), sgToDev, withPassword(), timeout)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("secure erase: %w", err), a.disable())
	}
	if s, err = a.identify(); err == nil && s.enabled {
		err = a.disable()
	}
	return err
}

// disable removes the password.
func (a *ATA) disable() error {
	if err := a.pass(command(ataDisable, sgToDev), sgToDev, withPassword(), ataTimeout); err != nil {
		return fmt.Errorf("remove the password: %w", err)
	}
	return nil
}
