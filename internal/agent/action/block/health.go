package block

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// Health is what a disk reports of itself (SMART).
type Health struct {
	// Failing is why the disk fails, or will soon, by its own judgement; empty where it does not.
	Failing string
	// Facts are for people: "reallocated sectors 0, pending sectors 0, hours 8120".
	Facts string
}

// ErrNoHealth means that a disk does not report its health, or not by a command that is known here.
var ErrNoHealth = errors.New("the disk does not report its health")

// Health reads the disk's health. It is known of NVMe, and of SATA disks that are not connected by USB.
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
		a, err := d.ATA()
		if err != nil {
			return Health{}, fmt.Errorf("%w: %w", ErrNoHealth, err)
		}
		return a.Health()
	}
	return Health{}, ErrNoHealth
}

// nvmeWarnings are the bits of the critical warning that are a fault of the disk. Bit 1 is of the temperature.
var nvmeWarnings = []struct {
	bit  byte
	text string
}{
	{1 << 0, "its spare blocks are below the threshold"}, {1 << 2, "its reliability is degraded by errors"},
	{1 << 3, "it is read-only"}, {1 << 4, "the backup of its volatile memory has failed"},
	{1 << 5, "its persistent memory is read-only or unreliable"},
}

// Health reads the log page SMART / Health Information.
func (n *NVMe) Health() (Health, error) {
	const page = 0x02
	data := make([]byte, 512)
	dwords := uint32(len(data)/4 - 1)
	err := n.send(nvmeCommand{Opcode: nvmeGetLogPage, NSID: nvmeAll, CDW10: dwords<<16 | page}, data, nvmeTimeout)
	if err != nil {
		return Health{}, err
	}
	var why []string
	for _, w := range nvmeWarnings {
		if data[0]&w.bit != 0 {
			why = append(why, w.text)
		}
	}
	count := func(at int) uint64 { return binary.LittleEndian.Uint64(data[at:]) } // of 128 bits: none needs the upper half
	facts := fmt.Sprintf("media errors %d, spare %d %% (threshold %d %%), wear %d %%, hours %d, unsafe shutdowns %d, %d °C",
		count(160), data[3], data[4], data[5], count(128), count(144), int(binary.LittleEndian.Uint16(data[1:]))-273)
	return Health{Failing: strings.Join(why, ", "), Facts: facts}, nil
}

// Commands and subcommands of SMART (ACS-3).
const (
	ataSMART           = 0xb0
	smartReadData      = 0xd0
	smartReadThreshold = 0xd1
)

// smartFacts are the attributes that people look at, by their numbers.
var smartFacts = []struct {
	id   byte
	name string
}{
	{5, "reallocated sectors"}, {197, "pending sectors"}, {198, "uncorrectable sectors"}, {187, "uncorrectable errors"},
	{199, "interface CRC errors"}, {9, "hours"},
}

// Health reads the attributes and thresholds of SMART.
func (a *ATA) Health() (Health, error) {
	identify := make([]byte, ataSector)
	if err := a.pass(command(ataIdentify, sgFromDev), sgFromDev, identify, ataTimeout); err != nil {
		return Health{}, fmt.Errorf("%w: identify: %w", ErrNoHealth, err)
	}
	if binary.LittleEndian.Uint16(identify[2*85:])&1 == 0 {
		return Health{}, fmt.Errorf("%w: SMART is not enabled", ErrNoHealth)
	}
	data, err := a.smart(smartReadData)
	if err != nil {
		return Health{}, err
	}
	thresholds, err := a.smart(smartReadThreshold)
	if err != nil {
		return Health{}, err
	}
	return healthOf(data, thresholds), nil
}

// smart reads one of the structures of SMART, whose bytes add up to 0.
func (a *ATA) smart(feature byte) ([]byte, error) {
	cdb := command(ataSMART, sgFromDev)
	cdb[4], cdb[10], cdb[12] = feature, 0x4f, 0xc2
	data := make([]byte, ataSector)
	if err := a.pass(cdb, sgFromDev, data, ataTimeout); err != nil {
		return nil, fmt.Errorf("SMART %#x: %w", feature, err)
	}
	sum := byte(0)
	for _, b := range data {
		sum += b
	}
	if sum != 0 {
		return nil, fmt.Errorf("SMART %#x: the disk's answer has a wrong checksum", feature)
	}
	return data, nil
}

// healthOf judges the attributes of SMART by their thresholds.
func healthOf(data, thresholds []byte) (h Health) {
	const entries, bytes, first = 30, 12, 2
	limits, raw := map[byte]byte{}, map[byte]uint32{}
	for i := range entries {
		t := thresholds[first+i*bytes:]
		limits[t[0]] = t[1]
	}
	var failing, facts []string
	for i := range entries {
		id, flags, value := data[first+i*bytes], data[first+i*bytes+1], data[first+i*bytes+3]
		if id == 0 {
			continue
		}
		raw[id] = binary.LittleEndian.Uint32(data[first+i*bytes+5:])
		const prefailure = 1 << 0
		if flags&prefailure != 0 && limits[id] > 0 && value <= limits[id] {
			failing = append(failing, fmt.Sprintf("attribute %d has the value %d, and its threshold is %d", id, value,
				limits[id]))
		}
	}
	for _, f := range smartFacts {
		if n, ok := raw[f.id]; ok {
			facts = append(facts, fmt.Sprintf("%s %d", f.name, n))
		}
	}
	return Health{Failing: strings.Join(failing, ", "), Facts: strings.Join(facts, ", ")}
}
