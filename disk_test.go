package trivet_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
)

func sataHealth() *trivet.DiskHealth {
	return &trivet.DiskHealth{Passed: true, PowerOnHours: new(int64(99900)), MediaErrors: new(int64(0)),
		ReallocatedSectors: new(int64(12)), PendingSectors: new(int64(0))}
}

// docs/limits.md has how much larger a machine's record is by the health of its disks.
func TestSizeOfDiskHealth(t *testing.T) {
	failing := sataHealth()
	failing.Passed, failing.Failing, failing.PercentUsed = false, strings.Repeat("x", 256), new(int64(255))
	for name, c := range map[string]struct {
		health *trivet.DiskHealth
		most   int
	}{
		"NVMe": {&trivet.DiskHealth{Passed: true, PowerOnHours: new(int64(99900)), PercentUsed: new(int64(12)),
			MediaErrors: new(int64(0))}, 85},
		"SATA":    {sataHealth(), 120},
		"failing": {failing, 420},
	} {
		without, err := json.Marshal(trivet.Disk{Name: "/dev/sda"})
		if err != nil {
			t.Fatal(err)
		}
		with, err := json.Marshal(trivet.Disk{Name: "/dev/sda", Health: c.health})
		if n := len(with) - len(without); err != nil || n > c.most {
			t.Errorf("%s: %d bytes, more than %d: %s, %v", name, n, c.most, with, err)
		}
	}
}

// What an inventory that is too large loses first is the health of disks that do not fail. The disks of the caller's
// own stay as they are.
func TestShortenDropsHealthFirst(t *testing.T) {
	var own trivet.Inventory
	for i := range 100 {
		own.Disks = append(own.Disks, trivet.Disk{Name: fmt.Sprintf("/dev/sd%02d", i), Health: sataHealth()})
	}
	own.Disks[7].Health.Passed, own.Disks[7].Health.Failing = false, "attribute 5"
	whole, err := json.Marshal(own)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ bytes, disks, healths int }{
		{len(whole), 100, 100}, {len(whole) - 1, 100, 1}, {len(whole) / 4, 0, 1},
	} {
		short := own
		short.Shorten(c.bytes)
		text, err := json.Marshal(short)
		if err != nil || len(text) > c.bytes || len(short.Disks) < c.disks || len(short.Disks) == 0 {
			t.Errorf("%d bytes of at most %d, %d disks, %v", len(text), c.bytes, len(short.Disks), err)
		}
		if n := strings.Count(string(text), `"health"`); n != c.healths || !strings.Contains(string(text), "attribute 5") {
			t.Errorf("%d bytes: %d disks have their health", c.bytes, n)
		}
	}
	if own.Disks[0].Health == nil || len(own.Disks) != 100 {
		t.Error("the disks of the caller were changed")
	}
}
