package block

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
)

// SCSI is a disk that has commands of SCSI itself, such as one of SAS.
type SCSI struct{ pass pass }

// Commands of SCSI (SPC-4).
const (
	scsiInquiry  = 0x12
	scsiLogSense = 0x4d
)

// Log pages of SCSI (SPC-4 and SBC-3).
const (
	logSupported   = 0x00 // the pages that the disk has
	logWrites      = 0x02 // errors, as those of the two below
	logReads       = 0x03
	logVerifies    = 0x05
	logFlash       = 0x11 // Solid State Media
	logScan        = 0x15 // Background Scan Results
	logPredictions = 0x2f // Informational Exceptions
)

// healthBySCSI reads the health of a disk that may be one of ATA behind a translation.
func healthBySCSI(send pass) (Health, error) {
	var data [36]byte
	if err := send(&[16]byte{0: scsiInquiry, 4: byte(len(data))}, sgFromDev, data[:], ataTimeout); err != nil {
		return Health{}, fmt.Errorf("%w: inquiry: %w", ErrNoHealth, err)
	}
	if vendor := string(data[8:16]); strings.TrimSpace(vendor) == "ATA" {
		return (&ATA{send}).Health()
	}
	return (&SCSI{send}).Health()
}

// Health reads what the disk predicts of itself, and what it has counted. Disks without log pages, such as virtual ones
// of RAID controllers, have none.
func (s *SCSI) Health() (Health, error) {
	data, err := s.log(logSupported)
	if err != nil {
		return Health{}, fmt.Errorf("%w: log page %#x: %w", ErrNoHealth, logSupported, err)
	}
	supported, pages := logBody(logSupported, data), map[byte]map[uint16][]byte{}
	for _, page := range []byte{logWrites, logReads, logVerifies, logFlash, logScan, logPredictions} {
		if !slices.Contains(supported, page) {
			continue
		}
		if data, err := s.log(page); err == nil {
			pages[page] = logParameters(logBody(page, data))
		}
	}
	h, ok := scsiHealth(pages)
	if !ok {
		return Health{}, fmt.Errorf("%w: it has no log page %#x", ErrNoHealth, logPredictions)
	}
	return h, nil
}

// log reads the beginning of a log page.
func (s *SCSI) log(page byte) ([]byte, error) {
	const cumulative = 1 << 6
	data := make([]byte, 512)
	cdb := &[16]byte{0: scsiLogSense, 2: cumulative | page}
	binary.BigEndian.PutUint16(cdb[7:], uint16(len(data)))
	return data, s.pass(cdb, sgFromDev, data, ataTimeout)
}

// logBody returns what a log page has after its header, as far as it was read; nil if it is another page.
func logBody(page byte, data []byte) []byte {
	const header, code = 4, 0x3f
	if len(data) < header || data[0]&code != page {
		return nil
	}
	n := int(binary.BigEndian.Uint16(data[2:]))
	return data[header:min(len(data), header+n)]
}

// logParameters returns the parameters of a log page that were read completely.
func logParameters(body []byte) map[uint16][]byte {
	all := map[uint16][]byte{}
	const header = 4
	for len(body) >= header {
		n := header + int(body[3])
		if len(body) < n {
			break
		}
		all[binary.BigEndian.Uint16(body)] = body[header:n]
		body = body[n:]
	}
	return all
}

// bigEndian returns a number of at most eight bytes.
func bigEndian(b []byte) (n uint64, ok bool) {
	for _, one := range b {
		n = n<<8 | uint64(one)
	}
	return n, len(b) > 0 && len(b) <= 8
}

// scsiHealth judges a disk by its log pages. It is not ok without that of predictions.
func scsiHealth(pages map[byte]map[uint16][]byte) (h Health, ok bool) {
	prediction := pages[logPredictions][0]
	if len(prediction) < 2 {
		return h, false
	}
	var why []string
	const exceeded, test = 0x5d, 0xff // a prediction, and one that only tests the host
	if code, qualifier := prediction[0], prediction[1]; code == exceeded && qualifier != test {
		why = append(why, fmt.Sprintf("it predicts its failure (code %#02x/%#02x)", code, qualifier))
	}
	h.DiskHealth = judged(why)
	var facts []string
	if n, ok := scsiErrors(pages); ok {
		h.MediaErrors = count(n)
		facts = append(facts, fmt.Sprintf("uncorrected errors %d", n))
	}
	if wear := pages[logFlash][1]; len(wear) >= 4 {
		h.PercentUsed = count(uint64(wear[3]))
		facts = append(facts, fmt.Sprintf("wear %d %%", wear[3]))
	}
	if scan := pages[logScan][0]; len(scan) >= 4 {
		hours := uint64(binary.BigEndian.Uint32(scan)) / 60
		h.PowerOnHours = powerOnHours(hours)
		facts = append(facts, fmt.Sprintf("hours %d", hours))
	}
	if len(prediction) >= 3 && prediction[2] != 0 && prediction[2] != 0xff {
		facts = append(facts, fmt.Sprintf("%d °C", prediction[2]))
	}
	h.Facts = strings.Join(facts, ", ")
	return h, true
}

// scsiErrors returns the errors of writes, reads and verifies that were not corrected.
func scsiErrors(pages map[byte]map[uint16][]byte) (sum uint64, ok bool) {
	const uncorrected, most = 6, math.MaxInt64 / 3
	for _, page := range []byte{logWrites, logReads, logVerifies} {
		if n, is := bigEndian(pages[page][uncorrected]); is {
			sum, ok = sum+min(n, most), true
		}
	}
	return sum, ok
}
