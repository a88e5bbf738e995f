package block

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// smartDisk simulates what a SATA disk answers to the commands of SMART, and keeps what it was sent.
type smartDisk struct {
	enabled          bool
	data, thresholds [ataSector]byte
	damaged          bool
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
	case cdb[14] == ataSMART && cdb[4] == smartReadData:
		sumUp(data, s.data[:])
		if s.damaged {
			data[100]++
		}
	case cdb[14] == ataSMART && cdb[4] == smartReadThreshold:
		sumUp(data, s.thresholds[:])
	}
	return nil
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
		"no threshold":   {change: func(s *smartDisk) { s.attribute(0, 5, 3, 1, 0, 2) }, facts: "reallocated sectors 2"},
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
		want := "ec/00 mid=00 high=00 count=1\nb0/d0 mid=4f high=c2 count=1\nb0/d1 mid=4f high=c2 count=1"
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
		if err != nil || got.Failing != c.failing || got.Facts != facts {
			t.Errorf("%s: %+v, %v", name, got, err)
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
