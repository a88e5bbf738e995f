package block

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"github.com/trivet-project/trivet"
)

// The inventory and the action test-disk read the health of disks here. The only library of Go that reads all three
// kinds of disks, github.com/anatol/smart.go, is not served by the module proxy.

// Health is what a disk reports of itself (SMART).
type Health struct {
	trivet.DiskHealth
	// Facts are for people, also what changes all the time: "reallocated sectors 0, pending sectors 0, hours 8120".
	Facts string
}

// ErrNoHealth means that a disk does not report its health, or not by a command that is known here.
var ErrNoHealth = errors.New("the disk does not report its health")

// Health reads the disk's health. It is known of NVMe, SATA and SAS disks that are not connected by USB.
func (d *Device) Health() (Health, error) {
	name := filepath.Base(d.path)
	switch {
	case d.isNode && strings.HasPrefix(name, "nvme"):
		n, err := d.NVMe()
		if err != nil {
			return Health{}, err
		}
		return n.Health()
	case d.isNode && strings.HasPrefix(name, "sd"):
		if err := d.isNotUSB(); err != nil {
			return Health{}, fmt.Errorf("%w: %w", ErrNoHealth, err)
		}
		return healthBySCSI(d.scsi)
	}
	return Health{}, ErrNoHealth
}

// judged is the judgement of a disk by the reasons for which it fails, if any.
func judged(why []string) trivet.DiskHealth {
	const most = 3
	text := strings.Join(why[:min(most, len(why))], ", ")
	if n := len(why) - most; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return trivet.DiskHealth{Passed: len(why) == 0, Failing: text}
}

// Hours that a disk had power are rounded, so that they differ between few boots. More than 114 years are no hours.
const (
	hoursStep = 100
	mostHours = 1_000_000
)

func powerOnHours(hours uint64) *int64 {
	if hours > mostHours {
		return nil
	}
	return new(int64(hours / hoursStep * hoursStep))
}

func count(n uint64) *int64 { return new(int64(min(n, math.MaxInt64))) }

// nvmeWarnings are the bits of the critical warning that are a fault of the disk. Bit 1 is of the temperature.
var nvmeWarnings = []struct {
	bit  byte
	text string
}{
	{1 << 0, "its spare blocks are below the threshold"}, {1 << 2, "its reliability is degraded by errors"},
	{1 << 3, "it is read-only"}, {1 << 4, "the backup of its volatile memory has failed"},
	{1 << 5, "its persistent memory is read-only or unreliable"},
}

// nvmeHealthBytes is the size of the log page SMART / Health Information.
const nvmeHealthBytes = 512

// Health reads the log page SMART / Health Information (NVM Express Base Specification 2.0, 5.16.1.3).
func (n *NVMe) Health() (Health, error) {
	const page, dwords = 0x02, nvmeHealthBytes/4 - 1
	var data [nvmeHealthBytes]byte
	err := n.send(nvmeCommand{Opcode: nvmeGetLogPage, NSID: nvmeAll, CDW10: dwords<<16 | page}, data[:], nvmeTimeout)
	if err != nil {
		return Health{}, err
	}
	return nvmeHealth(&data), nil
}

func nvmeHealth(data *[nvmeHealthBytes]byte) Health {
	var why []string
	for _, w := range nvmeWarnings {
		if data[0]&w.bit != 0 {
			why = append(why, w.text)
		}
	}
	// Numbers have 128 bits, and none needs the upper half.
	number := func(at int) uint64 { return binary.LittleEndian.Uint64(data[at:]) }
	h := Health{DiskHealth: judged(why)}
	h.PowerOnHours, h.PercentUsed, h.MediaErrors = powerOnHours(number(128)), count(uint64(data[5])), count(number(160))
	h.Facts = fmt.Sprintf("media errors %d, spare %d %% (threshold %d %%), wear %d %%, hours %d, unsafe shutdowns %d, "+
		"%d °C", number(160), data[3], data[4], data[5], number(128), number(144), int(binary.LittleEndian.Uint16(data[1:]))-273)
	return h
}
