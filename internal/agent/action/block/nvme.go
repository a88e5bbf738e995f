package block

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet/internal/wait"
)

// NVMe erases a namespace by admin commands to its controller (NVM Express Base Specification 2.0).
type NVMe struct {
	nsid  uint32
	admin func(c *nvmeCommand, data []byte) error
	poll  time.Duration // between two reads of the sanitize status
}

// nvmeCommand is struct nvme_passthru_cmd of linux/nvme_ioctl.h.
type nvmeCommand struct {
	Opcode, Flags                            uint8
	_                                        uint16
	NSID, CDW2, CDW3                         uint32
	Metadata, Data                           uint64 // addresses
	MetadataBytes, DataBytes                 uint32
	CDW10, CDW11, CDW12, CDW13, CDW14, CDW15 uint32
	TimeoutMS, Result                        uint32
}

// Numbers of linux/nvme_ioctl.h.
const (
	nvmeIoctlID    = 0x4e40     // _IO('N', 0x40)
	nvmeIoctlAdmin = 0xc0484e41 // _IOWR('N', 0x41, struct nvme_passthru_cmd)
)

// Admin commands.
const (
	nvmeGetLogPage = 0x02
	nvmeIdentify   = 0x06
	nvmeFormat     = 0x80
	nvmeSanitize   = 0x84
)

const (
	nvmeAll       = 0xffffffff // every namespace
	nvmeTimeout   = 30 * time.Second
	formatTimeout = 4 * time.Hour
)

// NVMe returns the device as a namespace of NVMe. It fails where it is none.
func (d *Device) NVMe() (*NVMe, error) {
	id, err := unix.IoctlRetInt(int(d.file.Fd()), nvmeIoctlID)
	if err != nil {
		return nil, fmt.Errorf("%s is not a namespace of NVMe: %w", d.path, err)
	}
	return &NVMe{uint32(id), d.nvmeAdmin, 2 * time.Second}, nil
}

// nvmeAdmin sends a command, with a buffer that it reads or writes.
func (d *Device) nvmeAdmin(c *nvmeCommand, data []byte) error {
	var pinned runtime.Pinner
	defer pinned.Unpin()
	if len(data) > 0 {
		pinned.Pin(&data[0])
		c.Data, c.DataBytes = uint64(uintptr(unsafe.Pointer(&data[0]))), uint32(len(data))
	}
	status, _, errno := unix.Syscall(unix.SYS_IOCTL, d.file.Fd(), nvmeIoctlAdmin, uintptr(unsafe.Pointer(c)))
	if errno != 0 {
		return fmt.Errorf("NVMe command %#x: %w", c.Opcode, errno)
	}
	if status != 0 {
		return fmt.Errorf("NVMe command %#x: the controller answers status %#x", c.Opcode, status)
	}
	return nil
}

func (n *NVMe) send(c nvmeCommand, data []byte, timeout time.Duration) error {
	c.TimeoutMS = uint32(timeout.Milliseconds())
	return n.admin(&c, data)
}

// identify reads one of the structures of 4096 bytes that Identify returns.
func (n *NVMe) identify(structure, nsid uint32) ([]byte, error) {
	data := make([]byte, 4096)
	return data, n.send(nvmeCommand{Opcode: nvmeIdentify, NSID: nsid, CDW10: structure}, data, nvmeTimeout)
}

// The structures of Identify, and where fields are in that of the controller.
const (
	idNamespace  = 0
	idController = 1
	idActive     = 2 // the namespaces that the controller has

	atCMIC, atOACS, atSANICAP, atFNA = 76, 256, 328, 524
)

// errShared: a command would also erase what is not of this disk.
var errShared = errors.New("would also erase other namespaces, or those of another host")

// isAlone returns nil where the controller has no other namespace, and its subsystem no other controller.
func (n *NVMe) isAlone(controller []byte) error {
	const otherControllers = 1 << 1
	if controller[atCMIC]&otherControllers != 0 {
		return errShared
	}
	active, err := n.identify(idActive, 0)
	if err != nil {
		return err
	}
	first, second := binary.LittleEndian.Uint32(active), binary.LittleEndian.Uint32(active[4:])
	if first != n.nsid || second != 0 {
		return errShared
	}
	return nil
}

// Actions of Sanitize.
const (
	sanitizeExit   = 1 // of a sanitize that failed
	sanitizeBlocks = 2
	sanitizeCrypto = 4
)

// Sanitize erases all that the controller has stored, also in caches and spare blocks. It continues one that is in
// progress, as after a loss of power. noise: what is read from the disk then is not constant. progress is called with
// parts of total.
func (n *NVMe) Sanitize(ctx context.Context, progress func(done, total int64)) (noise bool, err error) {
	controller, err := n.identify(idController, 0)
	if err != nil {
		return false, err
	}
	if err := n.isAlone(controller); err != nil {
		return false, fmt.Errorf("sanitize: %w", err)
	}
	const crypto, blocks = 1 << 0, 1 << 1
	action := uint32(0)
	switch can := binary.LittleEndian.Uint32(controller[atSANICAP:]); {
	case can&blocks != 0:
		action = sanitizeBlocks
	case can&crypto != 0:
		action = sanitizeCrypto
	default:
		return false, errors.New("sanitize: the controller supports neither block erase nor crypto erase")
	}
	s, err := n.sanitizeStatus()
	if err == nil && s.state != sanitizing {
		const unrestrictedExit = 1 << 3 // so that a failure does not make the disk useless
		err = n.send(nvmeCommand{Opcode: nvmeSanitize, CDW10: action | unrestrictedExit}, nil, nvmeTimeout)
	} else {
		action = s.action
	}
	if err != nil {
		return false, err
	}
	return action == sanitizeCrypto, n.awaitSanitize(ctx, progress)
}

// sanitizeState is that of the log page Sanitize Status.
type sanitizeState struct {
	state  int
	done   int64  // of 65536
	action uint32 // of the last command
}

// States of a sanitize.
const (
	sanitized      = 1
	sanitizing     = 2
	sanitizeFailed = 3
	sanitizedNoDea = 4 // and nothing was deallocated
)

func (n *NVMe) sanitizeStatus() (s sanitizeState, err error) {
	const page = 0x81
	data := make([]byte, 512)
	dwords := uint32(len(data)/4 - 1)
	err = n.send(nvmeCommand{Opcode: nvmeGetLogPage, NSID: nvmeAll, CDW10: dwords<<16 | page}, data, nvmeTimeout)
	s.done = int64(binary.LittleEndian.Uint16(data))
	s.state = int(binary.LittleEndian.Uint16(data[2:]) & 7)
	s.action = binary.LittleEndian.Uint32(data[4:]) & 7
	return s, err
}

func (n *NVMe) awaitSanitize(ctx context.Context, progress func(done, total int64)) error {
	for {
		s, err := n.sanitizeStatus()
		if err != nil {
			return err
		}
		switch s.state {
		case sanitized, sanitizedNoDea:
			return nil
		case sanitizeFailed:
			err := n.send(nvmeCommand{Opcode: nvmeSanitize, CDW10: sanitizeExit}, nil, nvmeTimeout)
			return errors.Join(errors.New("the sanitize failed"), err)
		case sanitizing:
			progress(s.done, 1<<16)
		default:
			return fmt.Errorf("the sanitize has not begun (state %d)", s.state)
		}
		if err := wait.Sleep(ctx, n.poll); err != nil {
			return err
		}
	}
}

// Format erases the namespace by Format NVM and keeps its format. It blocks until the controller has done it.
func (n *NVMe) Format() (noise bool, err error) {
	controller, err := n.identify(idController, 0)
	if err != nil {
		return false, err
	}
	const supported = 1 << 1
	if binary.LittleEndian.Uint16(controller[atOACS:])&supported == 0 {
		return false, errors.New("format: the controller does not support it")
	}
	const formatsAll, erasesAll, crypto = 1 << 0, 1 << 1, 1 << 2
	if controller[atFNA]&(formatsAll|erasesAll) != 0 {
		if err := n.isAlone(controller); err != nil {
			return false, fmt.Errorf("format: %w", err)
		}
	}
	namespace, err := n.identify(idNamespace, n.nsid)
	if err != nil {
		return false, err
	}
	const eraseData, eraseKey = 1, 2
	err = n.send(nvmeCommand{Opcode: nvmeFormat, NSID: n.nsid, CDW10: formatOf(namespace, eraseData)}, nil, formatTimeout)
	if err != nil && controller[atFNA]&crypto != 0 {
		noise = true
		err = n.send(nvmeCommand{Opcode: nvmeFormat, NSID: n.nsid, CDW10: formatOf(namespace, eraseKey)}, nil,
			formatTimeout)
	}
	return noise, err
}

// formatOf returns the format that a namespace has, with the way to erase it, as Format NVM takes them.
func formatOf(namespace []byte, erase uint32) uint32 {
	flbas, dps := uint32(namespace[26]), uint32(namespace[29])
	format, upper, metadata := flbas&0xf, flbas>>5&3, flbas>>4&1
	protection, location := dps&7, dps>>3&1
	return format | metadata<<4 | protection<<5 | location<<8 | erase<<9 | upper<<12
}
