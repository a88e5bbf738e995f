package block

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trivet-project/trivet"
)

// smartDisk simulates what a SATA disk answers to the commands of SMART, and keeps what it was sent.
type smartDisk struct {
	enabled          bool
	data, thresholds [ataSector]byte
	damaged          bool
	failing          bool // by its status
	noStatus, noLog  bool
	wear             byte // of a flash disk; 0: it is none
	sent             []string
}

// attribute sets the n-th attribute.
func (s *smartDisk) attribute(n int, id, flags, value, threshold byte, raw uint32) {
	at := 2 + 12*n
	s.data[at], s.data[at+1], s.data[at+3] = id, flags, value
	binary.LittleEndian.PutUint32(s.data[at+5:], raw)
	s.thresholds[at], s.thresholds[at+1] = id, threshold
}

func (s *smartDisk) pass(cdb *[16]byte, _ int32, data []byte, _ time.Duration) error {
	s.sent = append(s.sent, fmt.Sprintf("%02x/%02x mid=%02x high=%02x count=%d", cdb[14], cdb[4], cdb[10], cdb[12], cdb[6]))
	switch {
	case cdb[14] == ataIdentify && s.enabled:
		data[2*85] = 1
		if s.wear > 0 {
			data[2*87], data[2*87+1], data[2*217] = 1<<5, 1<<6, 1
		}
	case cdb[14] == ataSMART && cdb[4] == smartReadData:
		sumUp(data, s.data[:])
		if s.damaged {
			data[100]++
		}
	case cdb[14] == ataSMART && cdb[4] == smartReadThreshold:
		sumUp(data, s.thresholds[:])
	case cdb[14] == ataSMART && cdb[4] == smartReturnStatus && !s.noStatus:
		return s.status()
	case cdb[14] == ataReadLog && s.noLog:
		return senseError{0: 0x70, 2: 0x0b, 13: 0}
	case cdb[14] == ataReadLog:
		data[2], data[8], data[15] = 7, s.wear, 0xc0
	}
	return nil
}

// status is the answer to SMART RETURN STATUS, as libata returns it.
func (s *smartDisk) status() error {
	sense := senseError{0: 0x72, 1: 1, 3: 0x1d, 7: 14, 8: 0x09, 9: 12, 17: 0x4f, 19: 0xc2, 21: 0x50}
	if s.failing {
		sense[17], sense[19] = 0xf4, 0x2c
	}
	return fmt.Errorf("wrapped: %w", sense)
}

// sumUp copies a structure, with the checksum that makes the sum of its bytes 0.
func sumUp(to, from []byte) {
	copy(to, from)
	sum := byte(0)
	for _, b := range to[:ataSector-1] {
		sum += b
	}
	to[ataSector-1] = -sum
}

func TestHealthOfSATA(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(s *smartDisk)
		failing string
		facts   string
		err     string
	}{
		"good": {facts: "reallocated sectors 2, pending sectors 0, hours 8120"},
		"at its threshold": {change: func(s *smartDisk) { s.attribute(0, 5, 3, 36, 36, 70000) },
			failing: "attribute 5 has the value 36, and its threshold is 36",
			facts:   "reallocated sectors 70000, pending sectors 0, hours 8120"},
		"old age is no failure": {change: func(s *smartDisk) { s.attribute(2, 9, 2, 1, 10, 90000) },
			facts: "reallocated sectors 2, pending sectors 0, hours 90000"},
		"no threshold": {change: func(s *smartDisk) { s.attribute(0, 5, 3, 1, 0, 2) }, facts: "reallocated sectors 2"},
		"by its status": {change: func(s *smartDisk) { s.failing = true },
			failing: "its SMART status is that it will fail soon", facts: "reallocated sectors 2"},
		"by both": {change: func(s *smartDisk) { s.attribute(0, 5, 3, 36, 36, 70000); s.failing = true },
			failing: "attribute 5 has the value 36, and its threshold is 36", facts: "reallocated sectors 70000"},
		"without a status": {change: func(s *smartDisk) { s.noStatus = true }, facts: "reallocated sectors 2"},
		"many attributes": {change: func(s *smartDisk) {
			for i, id := range []byte{1, 3, 5, 10, 184} {
				s.attribute(i, id, 1, 1, 50, 0)
			}
		}, failing: "attribute 1 has the value 1, and its threshold is 50, attribute 3 has the value 1, and its threshold " +
			"is 50, attribute 5 has the value 1, and its threshold is 50 and 2 more", facts: "reallocated sectors 0"},
		"not enabled":    {change: func(s *smartDisk) { s.enabled = false }, err: "SMART is not enabled"},
		"wrong checksum": {change: func(s *smartDisk) { s.damaged = true }, err: "wrong checksum"},
	} {
		s := &smartDisk{enabled: true}
		s.attribute(0, 5, 3, 100, 36, 2)
		s.attribute(1, 197, 0x12, 100, 0, 0)
		s.attribute(2, 9, 0x32, 90, 0, 8120)
		if c.change != nil {
			c.change(s)
		}
		got, err := (&ATA{s.pass}).Health()
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v; want %s", name, err, c.err)
			}
			continue
		}
		if err != nil || got.Failing != c.failing || !strings.HasPrefix(got.Facts, c.facts) {
			t.Errorf("%s: %+v, %v\nwant failing %q, facts %q", name, got, err, c.failing, c.facts)
		}
		if got.Passed != (c.failing == "") {
			t.Errorf("%s: passed is %v", name, got.Passed)
		}
		want := "ec/00 mid=00 high=00 count=1\nb0/d0 mid=4f high=c2 count=1\nb0/d1 mid=4f high=c2 count=1\n" +
			"b0/da mid=4f high=c2 count=0"
		if sent := strings.Join(s.sent, "\n"); sent != want {
			t.Errorf("%s: sent\n%s\nwant\n%s", name, sent, want)
		}
	}
}

func TestHealthOfNVMe(t *testing.T) {
	for name, c := range map[string]struct {
		warning byte
		failing string
	}{
		"good": {}, "hot": {warning: 1 << 1},
		"worn out": {1<<0 | 1<<3, "its spare blocks are below the threshold, it is read-only"},
		"errors":   {1 << 2, "its reliability is degraded by errors"},
	} {
		var sent nvmeCommand
		n := &NVMe{nsid: 3, admin: func(c2 *nvmeCommand, data []byte) error {
			sent = *c2
			data[0], data[3], data[4], data[5] = c.warning, 97, 10, 4
			binary.LittleEndian.PutUint16(data[1:], 314)
			binary.LittleEndian.PutUint64(data[128:], 812)
			binary.LittleEndian.PutUint64(data[144:], 7)
			binary.LittleEndian.PutUint64(data[160:], 1)
			return nil
		}}
		got, err := n.Health()
		const facts = "media errors 1, spare 97 % (threshold 10 %), wear 4 %, hours 812, unsafe shutdowns 7, 41 °C"
		if err != nil || got.Failing != c.failing || got.Facts != facts || got.Passed != (c.failing == "") {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		want := trivet.DiskHealth{Passed: got.Passed, Failing: got.Failing, PowerOnHours: new(int64(800)),
			PercentUsed: new(int64(4)), MediaErrors: new(int64(1))}
		if diff := cmp.Diff(want, got.DiskHealth); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if sent.Opcode != nvmeGetLogPage || sent.NSID != nvmeAll || sent.CDW10 != 127<<16|2 {
			t.Errorf("%s: sent %+v", name, sent)
		}
	}
}

// A disk that has no health to report, such as a loop device or a file, is not one that fails.
func TestNoHealth(t *testing.T) {
	d := &Device{path: "/dev/loop0", isNode: true}
	if _, err := d.Health(); !errors.Is(err, ErrNoHealth) {
		t.Error(err)
	}
}

// What the inventory has of a SATA disk: hours are rounded, and implausible ones left out.
func TestFactsOfSATA(t *testing.T) {
	flash := trivet.DiskHealth{PowerOnHours: new(int64(8100)), ReallocatedSectors: new(int64(2)),
		PendingSectors: new(int64(0)), MediaErrors: new(int64(7)), PercentUsed: new(int64(103))}
	hard := flash
	hard.PercentUsed = nil
	noHours := hard
	noHours.PowerOnHours = nil
	for name, c := range map[string]struct {
		change func(s *smartDisk)
		want   trivet.DiskHealth
	}{
		"a hard disk":                  {want: hard},
		"a flash disk":                 {change: func(s *smartDisk) { s.wear = 103 }, want: flash},
		"a flash disk without the log": {change: func(s *smartDisk) { s.wear, s.noLog = 3, true }, want: hard},
		"minutes in the upper byte":    {change: func(s *smartDisk) { s.attribute(2, 9, 0x32, 90, 0, 59<<24|8120) }, want: hard},
		"no hours":                     {change: func(s *smartDisk) { s.attribute(2, 9, 0x32, 90, 0, 0xffffffff) }, want: noHours},
		"no attributes":                {change: func(s *smartDisk) { s.data, s.thresholds = sector{}, sector{} }},
	} {
		s := &smartDisk{enabled: true}
		s.attribute(0, 5, 3, 100, 36, 2)
		s.attribute(1, 197, 0x12, 100, 0, 0)
		s.attribute(2, 9, 0x32, 90, 0, 8120)
		s.attribute(3, 187, 0x32, 93, 0, 7)
		if c.change != nil {
			c.change(s)
		}
		got, err := (&ATA{s.pass}).Health()
		c.want.Passed = true
		if diff := cmp.Diff(c.want, got.DiskHealth); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
}

// sasDisk simulates what a SAS disk answers.
type sasDisk struct {
	vendor string
	pages  map[byte][]byte // what follows the header
	sent   []string
}

func (s *sasDisk) pass(cdb *[16]byte, _ int32, data []byte, _ time.Duration) error {
	s.sent = append(s.sent, fmt.Sprintf("%x", cdb[:commandBytes(cdb[0])]))
	page := cdb[2] & 0x3f
	body, ok := s.pages[page]
	switch {
	case cdb[0] == scsiInquiry:
		copy(data[8:16], s.vendor+"        ")
		return nil
	case cdb[0] != scsiLogSense || !ok:
		return senseError{0: 0x70, 2: 5, 12: 0x24, 13: 0}
	}
	data[0], data[2], data[3] = page, byte(len(body)>>8), byte(len(body))
	copy(data[4:], body)
	return nil
}

func TestHealthOfSAS(t *testing.T) {
	all := func() map[byte][]byte {
		return map[byte][]byte{
			0x00: {0, 2, 3, 5, 0x0d, 0x11, 0x15, 0x2f},
			0x02: {0, 0, 3, 1, 9, 0, 6, 3, 2, 1, 0},    // 256 errors of writes
			0x03: {0, 6, 3, 8, 0, 0, 0, 0, 0, 0, 0, 2}, // and two of reads
			0x11: {0, 1, 3, 4, 0, 0, 0, 12},
			0x15: {0, 0, 3, 12, 0, 7, 0xc0, 0x7c, 0, 0, 0, 0, 0, 0, 0, 0}, // 508,028 minutes
			0x2f: {0, 0, 3, 4, 0, 0, 33, 0},
		}
	}
	good := trivet.DiskHealth{Passed: true, PowerOnHours: new(int64(8400)), PercentUsed: new(int64(12)),
		MediaErrors: new(int64(258))}
	failing, unworn := good, good
	failing.Passed, failing.Failing = false, "it predicts its failure (code 0x5d/0x32)"
	unworn.PercentUsed = nil
	const facts = "uncorrected errors 258, wear 12 %, hours 8467, "
	predicts := func(b ...byte) func(s *sasDisk) {
		return func(s *sasDisk) { s.pages[0x2f] = append([]byte{0, 0, 3, 4}, b...) }
	}
	for name, c := range map[string]struct {
		change func(s *sasDisk)
		want   trivet.DiskHealth
		facts  string
		err    bool
	}{
		"good":        {want: good, facts: facts + "33 °C"},
		"failing":     {change: predicts(0x5d, 0x32, 33, 0), want: failing, facts: facts + "33 °C"},
		"only a test": {change: predicts(0x5d, 0xff, 33, 0), want: good, facts: facts + "33 °C"},
		"too hot":     {change: predicts(0x0b, 1, 60, 0), want: good, facts: facts + "60 °C"},
		"only predictions": {change: func(s *sasDisk) {
			s.pages = map[byte][]byte{0: {0, 0x2f}, 0x2f: {0, 0, 3, 2, 0, 0}}
		}, want: trivet.DiskHealth{Passed: true}},
		"a page that is listed and refused": {change: func(s *sasDisk) { delete(s.pages, 0x11) }, want: unworn,
			facts: "uncorrected errors 258, hours 8467, 33 °C"},
		"no log pages":                    {change: func(s *sasDisk) { s.pages = nil }, err: true},
		"no predictions":                  {change: func(s *sasDisk) { s.pages[0] = []byte{0, 2, 3} }, err: true},
		"cut off":                         {change: predicts(0x5d), err: true},
		"behind a translation that fails": {change: func(s *sasDisk) { s.vendor = "ATA" }, err: true},
	} {
		s := &sasDisk{vendor: "SEAGATE", pages: all()}
		if c.change != nil {
			c.change(s)
		}
		got, err := healthBySCSI(s.pass)
		if c.err {
			if !errors.Is(err, ErrNoHealth) {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
			continue
		}
		if diff := cmp.Diff(c.want, got.DiskHealth); diff != "" || err != nil || got.Facts != c.facts {
			t.Errorf("%s: %v, facts %q\n%s", name, err, got.Facts, diff)
		}
		if s.sent[0] != "120000002400" || s.sent[1] != "4d004000000000020000" {
			t.Errorf("%s: sent %q", name, s.sent)
		}
	}
}
