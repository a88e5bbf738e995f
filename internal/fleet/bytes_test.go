package fleet_test

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// written returns how many bytes of keys and values were written after a revision, by kind.
func written(t *testing.T, c *clientv3.Client, after, until int64) (total int, byKind map[string]int) {
	t.Helper()
	byKind = map[string]int{}
	for resp := range c.Watch(t.Context(), "", clientv3.WithPrefix(), clientv3.WithRev(after+1)) {
		if err := resp.Err(); err != nil {
			t.Fatal(err)
		}
		for _, ev := range resp.Events {
			if ev.Kv.ModRevision > until {
				return total, byKind
			}
			n := len(ev.Kv.Key) + len(ev.Kv.Value)
			total += n
			byKind[strings.Split(string(ev.Kv.Key), "/")[2]] += n
		}
		if resp.Header.Revision >= until {
			return total, byKind
		}
	}
	t.Fatal("the watch ended")
	return 0, nil
}

// inventory is that of a server with four disks and four ports.
func inventory() trivet.Inventory {
	i := trivet.Inventory{Arch: "amd64", Vendor: "Dell Inc.", Product: "PowerEdge R650", Serial: "ABC1234",
		UUID: "4c4c4544-0042-4310-8031-b4c04f4d3132", Firmware: "uefi", CPU: "Intel(R) Xeon(R) Gold 6338 CPU @ 2.00GHz",
		Cores: 128, MemoryMB: 515000, BMC: "10.1.2.3"}
	for n := range 4 {
		i.Disks = append(i.Disks, trivet.Disk{Name: fmt.Sprintf("/dev/nvme%dn1", n), Model: "SAMSUNG MZWLR3T8HBLS-00007",
			Bytes: 3840755982336, Bus: "nvme",
			Serial: fmt.Sprintf("S6EWNE0R50123%d", n), WWN: fmt.Sprintf("eui.3634573052501%04d", n)})
		i.NICs = append(i.NICs, trivet.NICInfo{Name: fmt.Sprintf("ens%df0np0", n), Driver: "ice",
			MAC: fmt.Sprintf("52:54:00:00:00:%02x", n+1)})
	}
	return i
}

// Bounds of what a run of five actions writes to the store: a small one, and one with 60 KB of user-data.
const (
	maxRunBytes   = 30_000
	maxLargeBytes = 160_000
)

// A run on a server, with every report in a transaction of its own, writes little: keys and values as they are stored.
// What it installs is written once.
func TestStoreBytesOfARun(t *testing.T) {
	t.Run("small", func(t *testing.T) { measureRun(t, "", maxRunBytes) })
	t.Run("large", func(t *testing.T) {
		text := make([]byte, 30_000)
		rand.Read(text)
		measureRun(t, "#cloud-config\n# "+hex.EncodeToString(text), maxLargeBytes)
	})
}

func measureRun(t *testing.T, userData string, limit int) {
	m := storetest.Member(t)
	r := rackOn(t, fleet.New(storetest.On(t, m, store.Options{}, state.New), "head0"))
	before := r.install(userData)
	total, byKind := written(t, m.Client(), before, r.Store.Revision())
	t.Logf("%d bytes in %d transactions: %v", total, r.Store.Revision()-before, byKind)
	if total > limit {
		t.Errorf("the run writes %d bytes to the store, want at most %d: %v", total, limit, byKind)
	}
}

// install makes run p-1 of five actions on the machine, with every report in a transaction of its own, and returns the
// revision before it.
func (r *rack) install(userData string) (before int64) {
	r.Helper()
	r.write(func(tx *store.Tx) error {
		tmpl := &trivet.Template{Meta: trivet.Meta{Project: "default", Name: "install"}}
		for _, use := range []string{"wipe", "partition", "format", "seed", "reboot"} {
			tmpl.Spec.Actions = append(tmpl.Spec.Actions, trivet.Action{Name: use, Use: "noop"})
		}
		tmpl.Spec.Actions[3].Use, tmpl.Spec.Actions[4].Use = "seed", "reboot"
		site := &trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
			Status: trivet.SiteStatus{ClusterVersion: trivet.CurrentRelease}}
		return errors.Join(r.Templates.In(tx).Create(tmpl), r.Sites.In(tx).Put(site))
	})
	before = r.Store.Revision()
	r.write(func(tx *store.Tx) error {
		return r.Provisions.In(tx).Create(&trivet.Provision{Meta: trivet.Meta{Project: "default", Name: "p"},
			Spec: trivet.ProvisionSpec{Template: "install", Machine: "m1", UserData: userData}})
	})
	r.must(r.Claim(r.Context(), "default/p"))
	for _, step := range []string{trivet.StepDHCP, trivet.StepScript, trivet.StepKernel} {
		r.must(r.ReachBootStep(r.Context(), "m1", step, 0))
	}
	r.must(r.helloWith("k1", 0, inventory()))
	for i, name := range []string{"wipe", "partition", "format", "seed", "reboot"} {
		seq := int64(2 * i)
		r.must(r.report(1, "k1", trivet.Report{Seq: seq + 1, Action: name, Attempt: 1, State: trivet.StepRunning}))
		r.must(r.report(1, "k1", trivet.Report{Seq: seq + 2, Action: name, Attempt: 1, State: trivet.StepDone}))
	}
	r.must(r.phoneHome(1))
	return before
}
