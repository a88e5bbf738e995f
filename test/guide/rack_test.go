package guide_test

import (
	"context"
	"encoding/csv"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/agent/action"
	"github.com/trivet-project/trivet/internal/bmc/bmctest"
	"github.com/trivet-project/trivet/internal/lab"
)

// bmcUser and bmcPassword are those of the Secret of the page.
const bmcUser, bmcPassword = "admin", "the-password"

// rack is the simulated machines of the list of the page, with their BMCs at the addresses that it names.
type rack struct {
	dir      string
	machines map[string]*machine
}

// machine is one of them.
type machine struct {
	lab.Machine
	failing atomic.Bool // its disk takes no data
}

// newRack builds the machines of a list. They are off.
func newRack(t *testing.T, list string, dhcp []string) *rack {
	t.Helper()
	f, err := os.Open(list)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil || strings.Join(rows[0], ",") != "name,mac,rack,bmc,label:pool" {
		t.Fatalf("%s has columns that this test does not know: %q, %v", list, rows[0], err)
	}
	r := &rack{dir: t.TempDir(), machines: map[string]*machine{}}
	for _, row := range rows[1:] {
		m := &machine{Machine: lab.Machine{Name: row[0], MAC: row[1], Dir: r.dir, DHCP: dhcp, Relay: relay,
			Log: slog.New(slog.DiscardHandler), Up: func() {}}}
		m.Wrap = m.write
		r.machines[m.Name] = m
		supply := &lab.Supply{Machine: &m.Machine}
		address := strings.TrimPrefix(row[3], "https://") + ":443"
		bmc, err := bmctest.StartRedfish(address, supply.Handler(bmcUser, bmcPassword))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := bmc.Stop(); err != nil {
				t.Error(err)
			}
			supply.Close()
		})
	}
	return r
}

// write performs the actions of a machine. While its disk fails, an image is not written.
func (m *machine) write(do lab.Doer) lab.Doer {
	return func(ctx context.Context, at *action.Attempt) error {
		if at.Action.Use == "image" && m.failing.Load() {
			err := &os.PathError{Op: "write", Path: "/dev/vda", Err: unix.EIO}
			return &action.Failure{Fault: trivet.FaultMachine, Err: err}
		}
		return do(ctx, at)
	}
}

// disk returns n bytes of a machine's disk.
func (r *rack) disk(name string, from int64, n int) ([]byte, error) {
	f, err := os.Open(filepath.Join(r.dir, name+".disk"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, n)
	_, err = f.ReadAt(b, from)
	return b, err
}

// relay is the router of the network of the page, which relays DHCP.
var relay = netip.MustParseAddr("10.7.0.1")
