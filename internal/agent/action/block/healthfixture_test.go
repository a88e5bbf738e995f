package block

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trivet-project/trivet"
)

// captured returns what disks have answered, by disk and structure (testdata/health.txt).
func captured(t testing.TB) map[string][]byte {
	t.Helper()
	text, err := os.ReadFile("testdata/health.txt")
	if err != nil {
		t.Fatal(err)
	}
	all, name := map[string][]byte{}, ""
	for line := range strings.Lines(string(text)) {
		switch line = strings.TrimSuffix(line, "\n"); {
		case strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "  "):
			b, err := hex.DecodeString(strings.TrimSpace(line))
			if err != nil {
				t.Fatal(err)
			}
			all[name] = append(all[name], b...)
		default:
			name = line
		}
	}
	return all
}

// replay answers SCSI commands with what a disk has answered to them.
func replay(all map[string][]byte, disk string) pass {
	return func(cdb *[16]byte, _ int32, data []byte, _ time.Duration) error {
		what := map[byte]string{scsiInquiry: "inquiry", scsiLogSense: fmt.Sprintf("log %02x", cdb[2]&0x3f)}[cdb[0]]
		if cdb[0] == 0x85 {
			what = map[byte]string{ataIdentify: "identify", ataSMART: fmt.Sprintf("smart %02x", cdb[4])}[cdb[14]]
		}
		if what == "smart da" {
			return senseError(all[disk+" status sense"])
		}
		b, ok := all[disk+" "+what]
		if !ok {
			return fmt.Errorf("%x was not sent to %s", *cdb, disk)
		}
		copy(data, b)
		return nil
	}
}

// Disks are judged by what QEMU's and the kernel's own have answered.
func TestHealthThatWasCaptured(t *testing.T) {
	all, zero := captured(t), new(int64(0))
	nvme := &NVMe{admin: func(_ *nvmeCommand, data []byte) error {
		copy(data, all["nvme log 02"])
		return nil
	}}
	for name, c := range map[string]struct {
		read func() (Health, error)
		want Health
	}{
		"nvme": {nvme.Health, Health{trivet.DiskHealth{Passed: true, PowerOnHours: zero, PercentUsed: zero,
			MediaErrors: zero}, "media errors 0, spare 0 % (threshold 0 %), wear 0 %, hours 0, unsafe shutdowns 0, 50 °C"}},
		"sata": {func() (Health, error) { return healthBySCSI(replay(all, "sata")) }, Health{trivet.DiskHealth{Passed: true,
			PowerOnHours: zero, ReallocatedSectors: zero}, "reallocated sectors 0, hours 1"}},
		"scsi": {func() (Health, error) { return healthBySCSI(replay(all, "scsi")) },
			Health{trivet.DiskHealth{Passed: true}, "38 °C"}},
	} {
		got, err := c.read()
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
}

// Whatever a disk answers, of whatever length, there is a judgement of bounded size, or an error.
func FuzzHealth(f *testing.F) {
	all := captured(f)
	for _, name := range []string{"nvme log 02", "sata smart d0", "sata status sense", "scsi log 2f"} {
		f.Add(all[name], all["sata identify"], all["sata smart d1"], all["sata status sense"])
	}
	f.Add([]byte{0x2f, 0, 0, 8, 0, 0, 3, 4, 0x5d, 0x10}, []byte{}, []byte{}, []byte{0x70, 0, 1, 13: 0x1d})
	f.Fuzz(func(t *testing.T, first, second, third, sense []byte) {
		check := func(h Health, err error) {
			const mostText, mostFacts = 256, 512
			if err == nil && h.Passed != (h.Failing == "") || len(h.Failing) > mostText || len(h.Facts) > mostFacts {
				t.Errorf("%+v, %v", h, err)
			}
			counts := []*int64{h.PowerOnHours, h.PercentUsed, h.MediaErrors, h.ReallocatedSectors, h.PendingSectors}
			if slices.ContainsFunc(counts, func(n *int64) bool { return n != nil && *n < 0 }) {
				t.Errorf("a count is negative: %+v", h)
			}
		}
		var page [nvmeHealthBytes]byte
		copy(page[:], first)
		check(nvmeHealth(&page), nil)
		for _, vendor := range []string{"ATA", "SEAGATE"} {
			answers := [][]byte{first, second, third}
			check(healthBySCSI(func(cdb *[16]byte, _ int32, data []byte, _ time.Duration) error {
				switch {
				case cdb[0] == scsiInquiry:
					copy(data[8:16], vendor+"        ")
					return nil
				case data == nil:
					if s := senseError(sense); s.isKnown() {
						_ = s.Error()
						return s
					}
					return errors.New("refused")
				}
				answer := answers[0]
				answers = append(answers[1:], answer)
				copy(data, answer)
				return nil
			}))
		}
		ataWear((*sector)(page[:]))
		var thresholds sector
		copy(thresholds[:], second)
		check(ataHealth((*sector)(page[:]), &thresholds, len(third)%2 == 0), nil)
		for _, p := range logParameters(logBody(logPredictions, first)) {
			if len(p) > len(first) {
				t.Error("a parameter is longer than its page")
			}
		}
		_, _, _ = senseError(sense).registers()
	})
}
