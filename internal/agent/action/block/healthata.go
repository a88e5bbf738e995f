package block

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// Commands and subcommands of SMART (ACS-4, 7.48). That of thresholds is of earlier standards, and disks have it.
const (
	ataSMART           = 0xb0
	ataReadLog         = 0x2f // READ LOG EXT
	smartReadData      = 0xd0
	smartReadThreshold = 0xd1
	smartReturnStatus  = 0xda
)

// sector is a structure of ATA.
type sector = [ataSector]byte

// Attributes of SMART.
const (
	attrReallocated   = 5
	attrHours         = 9
	attrErrors        = 187
	attrPending       = 197
	attrUncorrectable = 198
	attrCRC           = 199
)

// smartFacts are the attributes that people look at.
var smartFacts = []struct {
	id   byte
	name string
}{
	{attrReallocated, "reallocated sectors"}, {attrPending, "pending sectors"},
	{attrUncorrectable, "uncorrectable sectors"}, {attrErrors, "uncorrectable errors"},
	{attrCRC, "interface CRC errors"}, {attrHours, "hours"},
}

// Health reads the status, the attributes and the thresholds of SMART, and the wear of a flash disk.
func (a *ATA) Health() (Health, error) {
	identify, err := a.read(command(ataIdentify, sgFromDev))
	if err != nil {
		return Health{}, fmt.Errorf("%w: identify: %w", ErrNoHealth, err)
	}
	word := func(n int) uint16 { return binary.LittleEndian.Uint16(identify[2*n:]) }
	if word(85)&1 == 0 {
		return Health{}, fmt.Errorf("%w: SMART is not enabled", ErrNoHealth)
	}
	data, err := a.smart(smartReadData)
	if err != nil {
		return Health{}, err
	}
	thresholds, errThresholds := a.smart(smartReadThreshold)
	fails, errStatus := a.status()
	if errThresholds != nil && errStatus != nil {
		return Health{}, errors.Join(errThresholds, errStatus)
	}
	h := ataHealth(data, thresholds, fails)
	const flash, logs = 1, 1 << 5
	if word(217) == flash && word(87)&(3<<14|logs) == 1<<14|logs {
		a.addWear(&h)
	}
	return h, nil
}

// read sends a command that returns one sector.
func (a *ATA) read(cdb *[16]byte) (*sector, error) {
	var data sector
	return &data, a.pass(cdb, sgFromDev, data[:], ataTimeout)
}

// smartCommand is a subcommand of SMART.
func smartCommand(feature byte, direction int32) *[16]byte {
	cdb := command(ataSMART, direction)
	cdb[4], cdb[10], cdb[12] = feature, 0x4f, 0xc2
	return cdb
}

// smart reads one of the structures of SMART, whose bytes add up to 0.
func (a *ATA) smart(feature byte) (*sector, error) {
	data, err := a.read(smartCommand(feature, sgFromDev))
	if err != nil {
		return &sector{}, fmt.Errorf("SMART %#x: %w", feature, err)
	}
	sum := byte(0)
	for _, b := range data {
		sum += b
	}
	if sum != 0 {
		return &sector{}, fmt.Errorf("SMART %#x: the disk's answer has a wrong checksum", feature)
	}
	return data, nil
}

// status reads whether the disk says that it fails. It answers in registers, which are returned as sense data.
func (a *ATA) status() (fails bool, err error) {
	const returnRegisters = 1 << 5
	cdb := smartCommand(smartReturnStatus, sgNone)
	cdb[2] |= returnRegisters
	err = a.pass(cdb, sgNone, nil, ataTimeout)
	var sense senseError
	if errors.As(err, &sense) {
		mid, high, ok := sense.registers()
		switch {
		case ok && mid == 0x4f && high == 0xc2:
			return false, nil
		case ok && mid == 0xf4 && high == 0x2c:
			return true, nil
		}
	}
	if err == nil {
		err = errors.New("no registers were returned")
	}
	return false, fmt.Errorf("SMART %#x: %w", smartReturnStatus, err)
}

// ataHealth judges a disk by what its status says, and by the attributes and their thresholds.
func ataHealth(data, thresholds *sector, fails bool) Health {
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
	if fails && len(failing) == 0 {
		failing = []string{"its SMART status is that it will fail soon"}
	}
	for _, f := range smartFacts {
		if n, ok := raw[f.id]; ok {
			facts = append(facts, fmt.Sprintf("%s %d", f.name, n))
		}
	}
	h := Health{DiskHealth: judged(failing), Facts: strings.Join(facts, ", ")}
	addAttributes(&h, raw)
	return h
}

// addAttributes adds the raw values that the inventory has.
func addAttributes(h *Health, raw map[byte]uint32) {
	if hours, ok := raw[attrHours]; ok {
		if hours > mostHours {
			hours &= 1<<24 - 1 // some disks have a fraction of the hour in the upper bytes
		}
		h.PowerOnHours = powerOnHours(uint64(hours))
	}
	for id, to := range map[byte]**int64{attrErrors: &h.MediaErrors, attrReallocated: &h.ReallocatedSectors,
		attrPending: &h.PendingSectors} {
		if n, ok := raw[id]; ok {
			*to = count(uint64(n))
		}
	}
}

// addWear adds the wear of a flash disk, by its Device Statistics (ACS-4, 9.5), if it has them.
func (a *ATA) addWear(h *Health) {
	const log, page = 0x04, 7 // Solid State Device Statistics
	cdb := command(ataReadLog, sgFromDev)
	const extended = 1
	cdb[1] |= extended
	cdb[8], cdb[10] = log, page
	data, err := a.read(cdb)
	if err != nil {
		return
	}
	if wear, ok := ataWear(data); ok {
		h.PercentUsed = count(uint64(wear))
		h.Facts = strings.TrimPrefix(fmt.Sprintf("%s, wear %d %%", h.Facts, wear), ", ")
	}
}

// ataWear returns the Percentage Used Endurance Indicator of a page of Device Statistics.
func ataWear(data *sector) (percent byte, ok bool) {
	const page, supported, valid = 7, 1 << 7, 1 << 6
	return data[8], data[2] == page && data[15]&(supported|valid) == supported|valid
}
