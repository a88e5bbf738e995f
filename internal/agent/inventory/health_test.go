package inventory

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/agent/action/block"
)

// Each disk that answers has its health, whatever the others do: one that hangs delays the agent for a limited time,
// and its answer is not used later.
func TestHealthOfDisksOfWhichOneHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disks := []trivet.Disk{{Name: "/dev/nvme0n1"}, {Name: "/dev/sda"}, {Name: "/dev/sdb"}, {Name: "/dev/sdc", Bus: "usb"},
			{Name: "/dev/sdd", Removable: true}, {Name: "/dev/vda"}}
		released := make(chan struct{})
		read := func(path string) (trivet.DiskHealth, error) {
			switch path {
			case "/dev/nvme0n1":
				return trivet.DiskHealth{Passed: true, PercentUsed: new(int64(3))}, nil
			case "/dev/sda":
				<-released
				return trivet.DiskHealth{Passed: true}, nil
			case "/dev/sdb":
				return trivet.DiskHealth{}, errors.New("status 0x8")
			case "/dev/vda":
				return trivet.DiskHealth{}, fmt.Errorf("%w: it is virtual", block.ErrNoHealth)
			}
			t.Errorf("%s was read", path)
			return trivet.DiskHealth{}, nil
		}
		var log bytes.Buffer
		began := time.Now()
		addHealth(t.Context(), disks, read, slog.New(slog.NewTextHandler(&log, nil)))
		if took := time.Since(began); took != healthTimeout {
			t.Errorf("it took %s", took)
		}
		close(released)
		synctest.Wait()
		want := []trivet.Disk{{Name: "/dev/nvme0n1", Health: &trivet.DiskHealth{Passed: true, PercentUsed: new(int64(3))}},
			{Name: "/dev/sda"}, {Name: "/dev/sdb"}, {Name: "/dev/sdc", Bus: "usb"}, {Name: "/dev/sdd", Removable: true},
			{Name: "/dev/vda"}}
		if diff := cmp.Diff(want, disks); diff != "" {
			t.Error(diff)
		}
		for _, text := range []string{`disk=/dev/sda timeout=10s`, `disk=/dev/sdb error="status 0x8"`} {
			if !strings.Contains(log.String(), text) {
				t.Errorf("the log has no %q:\n%s", text, &log)
			}
		}
		if lines := strings.Count(log.String(), "\n"); lines != 2 {
			t.Errorf("the log has %d lines:\n%s", lines, &log)
		}
	})
}

// Where all disks answer, nothing waits.
func TestHealthOfDisksThatAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disks := []trivet.Disk{{Name: "/dev/sda"}, {Name: "/dev/sdb"}}
		began := time.Now()
		addHealth(t.Context(), disks, func(path string) (trivet.DiskHealth, error) {
			return trivet.DiskHealth{Passed: path == "/dev/sda", Failing: path}, nil
		}, slog.New(slog.DiscardHandler))
		if time.Since(began) != 0 || !disks[0].Health.Passed || disks[1].Health.Failing != "/dev/sdb" {
			t.Errorf("after %s: %+v %+v", time.Since(began), disks[0].Health, disks[1].Health)
		}
	})
}

// A disk that cannot be opened is left without its health.
func TestHealthOfADiskThatIsGone(t *testing.T) {
	disks := []trivet.Disk{{Name: t.TempDir() + "/gone"}}
	var log bytes.Buffer
	ReadHealth(t.Context(), disks, slog.New(slog.NewTextHandler(&log, nil)))
	if disks[0].Health != nil || !strings.Contains(log.String(), "no such file") {
		t.Errorf("%+v\n%s", disks[0], &log)
	}
}
