package invariant_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/invariant"
)

var now = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// well returns the facts of a site of three heads that is well: each answers all services to each.
func well() *trivet.StatusFacts {
	f := &trivet.StatusFacts{Head: "head0", Time: now, Quorum: true, ClusterVersion: "0.3.1", RecoveryKey: true,
		Networks: []trivet.NetworkFacts{{Name: "lan", DHCP: "server", Heads: []string{"head0", "head1", "head2"}}},
		Machines: map[string]int{"available": 7, "active": 3},
		Backups: trivet.BackupStatus{Created: &trivet.BackupEvent{Backup: "b2", Revision: 9, Made: now.Add(-time.Hour)},
			Verified: &trivet.BackupEvent{Backup: "b1", Revision: 5, Made: now.Add(-25 * time.Hour)}}}
	for i := range 3 {
		f.Heads = append(f.Heads, head(fmt.Sprint("head", i)))
	}
	f.Heads[0].State = "leader"
	return f
}

func head(name string) trivet.HeadFacts {
	o := &trivet.OwnFacts{Time: now, Quorum: true, DiskFree: 50 << 30, DiskSize: 100 << 30, DiskNeeded: 128 << 20,
		MemoryUsed: 200 << 20, MemoryAvailable: 8 << 30, MemoryTotal: 16 << 30, StoreUsed: 1 << 20, StoreFile: 2 << 20,
		StoreQuota: 8 << 30, Certificates: []trivet.CertificateFacts{{Name: "member", Expires: now.AddDate(0, 0, 20)},
			{Name: "CA", Expires: now.AddDate(70, 0, 0)}}}
	for _, to := range []string{"head0", "head1", "head2"} {
		for _, service := range []string{"dhcp", "tftp", "script", "kernel"} {
			o.Probes = append(o.Probes, trivet.ProbeFacts{Network: "lan", Head: to, Service: service})
		}
	}
	return trivet.HeadFacts{Name: name, Role: "voter", State: "member", Voter: true, Version: "v1", Release: "0.3.1",
		Own: o}
}

// lose makes a head not respond: nothing that it serves answers any more.
func lose(f *trivet.StatusFacts, name string) {
	last := trivet.Duration(12 * time.Second)
	for i := range f.Heads {
		h := &f.Heads[i]
		if h.Name == name {
			h.Down, h.Own, h.Problem, h.LastHeard = true, nil, "connection refused", &last
			continue
		}
		failProbes(h, name, "dhcp", "tftp", "script", "kernel")
	}
}

// failProbes makes what one head probes at another one fail.
func failProbes(from *trivet.HeadFacts, to string, services ...string) {
	if from.Own == nil {
		return
	}
	for i := range from.Own.Probes {
		if p := &from.Own.Probes[i]; p.Head == to && slices.Contains(services, p.Service) {
			p.Problem = "no answer"
		}
	}
}

// all does the same to each head.
func each(f *trivet.StatusFacts, do func(h *trivet.HeadFacts)) {
	for i := range f.Heads {
		do(&f.Heads[i])
	}
}

func TestAllInvariantsHold(t *testing.T) {
	for _, i := range invariant.Check(well()) {
		if i.State != trivet.InvariantHolds || i.Summary == "" || i.Remedy != "" {
			t.Errorf("%+v", i)
		}
	}
}

// What breaks what: for each change of a site that is well, the invariants that do not hold any more, each with a part
// of its summary and of its remedy. No other one may change.
func TestInvariants(t *testing.T) {
	const digest = "sha256:aa"
	for _, c := range []struct {
		name   string
		change func(f *trivet.StatusFacts)
		want   []string // "state name: summary | remedy"
	}{
		{"a head is lost", func(f *trivet.StatusFacts) { lose(f, "head2") }, []string{
			"broken heads: head2 does not respond, last heard 12s ago | trivet head replace head2",
			"warning spare: the loss of any of head0, head1 stops writes: 2 of 3 voters respond | start head2"}},
		{"the quorum is lost", func(f *trivet.StatusFacts) {
			f.Quorum = false
			lose(f, "head1")
			lose(f, "head2")
			f.Heads[0].Own.Quorum = false
		}, []string{
			"broken quorum: no quorum: 1 of 3 voters respond, and 2 must | start head1, head2; where they are lost for good: " +
				"trivet recover --from-survivor on a full head that is left (docs/recovery.md)",
			"broken heads: head1 does not respond | start it; where it is lost: see the invariant quorum",
			"warning spare: there is none | quorum"}},
		{"no leader", func(f *trivet.StatusFacts) { f.Quorum = false }, []string{
			"broken quorum: head0 is connected to no leader, although 3 of 3 voters respond | logs",
			"warning spare: there is none | quorum"}},
		{"a head is cut off", func(f *trivet.StatusFacts) { f.Heads[1].Own.Quorum = false }, []string{
			"broken heads: head1 is cut off from the quorum | link"}},
		{"a head joins", func(f *trivet.StatusFacts) {
			f.Heads[2].State, f.Heads[2].Voter, f.Heads[2].Problem = "joining", false, "it has not caught up"
		}, []string{"warning heads: head2 joins: it has not caught up | trivet head list",
			"warning spare: the loss of head0 or of head1 stops writes | trivet head token --witness"}},
		{"one head", func(f *trivet.StatusFacts) {
			f.Heads = f.Heads[:1]
			f.Heads[0].Own.Probes = f.Heads[0].Own.Probes[:4]
		}, []string{"warning spare: the loss of head0 stops everything: it is the only head | trivet head token"}},
		{"two heads", func(f *trivet.StatusFacts) { f.Heads = f.Heads[:2] }, []string{
			"warning spare: the loss of head0 or of head1 stops writes | --witness"}},
		{"one full head and two witnesses", func(f *trivet.StatusFacts) {
			for i := range f.Heads[1:] {
				f.Heads[i+1].Role, f.Heads[i+1].Own = trivet.RoleWitness, nil
			}
		}, []string{"warning spare: the loss of head0 stops everything but votes | add a full head"}},
		{"an update", func(f *trivet.StatusFacts) { f.Heads[1].Version = "v2" }, []string{
			"warning versions: the heads run 2 versions: v1, v2 | update the other heads"}},
		{"a platform keeps its agent", func(f *trivet.StatusFacts) {
			f.Platforms = []trivet.PlatformFacts{{Name: "p1", Reason: "it has no base"}}
		}, []string{"warning versions: platform p1 does not follow the heads: it has no base | trivet platform usage p1"}},
		{"a clock is wrong", func(f *trivet.StatusFacts) { f.Heads[1].ClockAhead = trivet.SignedDuration(-20 * time.Second) },
			[]string{"warning clocks: the clock of head1 is 20s behind that of head0 | NTP"}},
		{"a clock is very wrong", func(f *trivet.StatusFacts) { f.Heads[1].ClockAhead = trivet.SignedDuration(10 * time.Minute) },
			[]string{"broken clocks: the clock of head1 is 10 minutes ahead of that of head0 | NTP"}},
		{"refused values", func(f *trivet.StatusFacts) { f.Heads[1].Own.Refused = 2 }, []string{
			"broken store-data: head1 refuses 2 values of the store, which do not authenticate | trivet head replace head1"}},
		{"an alarm", func(f *trivet.StatusFacts) { f.Heads[1].Own.Alarms = []string{"CORRUPT"} }, []string{
			"broken store-data: the store of head1 has the alarm CORRUPT | docs/recovery.md"}},
		{"a copy is behind", func(f *trivet.StatusFacts) { f.Heads[1].Lag = 5000 }, []string{
			"warning store-data: head1 is 5000 revisions behind | disk and the link"}},
		{"the store fills", func(f *trivet.StatusFacts) { each(f, func(h *trivet.HeadFacts) { h.Own.StoreUsed = 6 << 30 }) },
			[]string{"warning store-size: the store of head0 uses 6.0 GiB of its quota of 8.0 GiB (75 %) | --store-quota"}},
		{"the store is full", func(f *trivet.StatusFacts) { f.Heads[2].Own.StoreUsed = 15 << 29 }, []string{
			"broken store-size: the store of head2 uses 7.5 GiB of its quota of 8.0 GiB (93 %): only deletions | delete"}},
		{"other quotas", func(f *trivet.StatusFacts) { f.Heads[2].Own.StoreQuota = 4 << 30 }, []string{
			"warning store-size: the heads have different quotas | same --store-quota"}},
		{"a disk fills", func(f *trivet.StatusFacts) { f.Heads[1].Own.DiskFree = 1 << 30 }, []string{
			"warning disk: the disk of head1 has 1.0 GiB left | free some space on the disk of head1"}},
		{"a disk is full", func(f *trivet.StatusFacts) { f.Heads[1].Own.DiskFree = 1 << 20 }, []string{
			"broken disk: the disk of head1 is full: 1 MiB free, 128 MiB needed | free some space"}},
		{"a disk fails", func(f *trivet.StatusFacts) {
			f.Heads[1].Own.DiskErrors = []string{"blobs: read /x/blobs/1: input/output error"}
		}, []string{"broken disk: a disk of head1 fails: blobs: read /x/blobs/1: input/output error | trivet head replace " +
			"head1"}},
		{"a head uses much memory", func(f *trivet.StatusFacts) { f.Heads[1].Own.MemoryUsed = 5 << 30 }, []string{
			"warning memory: head1 uses 5.0 GiB of memory | docs/limits.md"}},
		{"a host has no memory", func(f *trivet.StatusFacts) { f.Heads[1].Own.MemoryAvailable = 100 << 20 }, []string{
			"warning memory: the host of head1 has 100 MiB of 16 GiB of memory available | host of head1"}},
		{"a certificate expires", func(f *trivet.StatusFacts) {
			f.Heads[1].Own.Certificates[0].Expires = now.Add(50 * time.Hour)
		}, []string{"warning certificates: the certificate member of head1 expires in 2 days, on 2026-11-28 | log of head1"}},
		{"a certificate has expired", func(f *trivet.StatusFacts) {
			f.Heads[1].Own.Certificates[0].Expires = now.Add(-time.Hour)
		}, []string{"broken certificates: the certificate member of head1 has expired, on 2026-11-26 | log of head1"}},
		{"a CA expires", func(f *trivet.StatusFacts) { f.Heads[0].Own.Certificates[1].Expires = now.AddDate(0, 2, 0) },
			[]string{"warning certificates: the certificate CA of head0 expires in 61 days | docs/security.md"}},
		{"a head answers no DHCP", func(f *trivet.StatusFacts) {
			each(f, func(h *trivet.HeadFacts) { failProbes(h, "head1", "dhcp") })
		}, []string{"warning dhcp: head1 answers no DHCP in network lan: no answer | UDP port 67"}},
		{"one head alone answers DHCP", func(f *trivet.StatusFacts) {
			each(f, func(h *trivet.HeadFacts) { failProbes(h, "head1", "dhcp"); failProbes(h, "head2", "dhcp") })
		}, []string{"warning spare: the loss of head0 ends DHCP in network lan | let another head serve network lan",
			"warning dhcp: head1 answers no DHCP in network lan: no answer | UDP port 67"}},
		{"no head answers DHCP", func(f *trivet.StatusFacts) {
			each(f, func(h *trivet.HeadFacts) {
				for _, to := range []string{"head0", "head1", "head2"} {
					failProbes(h, to, "dhcp")
				}
			})
		}, []string{"broken dhcp: no head answers DHCP in network lan | UDP port 67"}},
		{"a cable between two heads", func(f *trivet.StatusFacts) { failProbes(&f.Heads[0], "head1", "dhcp") }, []string{
			"warning dhcp: head1 answers DHCP in network lan to head1, head2, and not to head0: no answer | link"}},
		{"no TFTP", func(f *trivet.StatusFacts) {
			each(f, func(h *trivet.HeadFacts) { failProbes(h, "head2", "tftp") })
		}, []string{"warning tftp: head2 answers no TFTP in network lan: no answer | UDP port 69"}},
		{"no kernel", func(f *trivet.StatusFacts) {
			each(f, func(h *trivet.HeadFacts) { failProbes(h, "head2", "kernel") })
		}, []string{"warning boot-http: head2 answers no HTTP boot requests in network lan: no answer | TCP port 7481"}},
		{"a blob on two heads", func(f *trivet.StatusFacts) {
			f.Heads[1].Own.BlobsMissing, f.Heads[1].Own.Missing = 1, []string{digest}
		}, []string{"warning blobs: head1 lacks 1 blob that records refer to: sha256:aa | it pulls them"}},
		{"a blob on one head", func(f *trivet.StatusFacts) {
			for i := range 2 {
				f.Heads[i].Own.BlobsMissing, f.Heads[i].Own.Missing = 1, []string{digest}
			}
		}, []string{"warning spare: the loss of head2 loses 1 blob, of which no other head that responds has a copy | wait",
			"warning blobs: head0 lacks 1 blob | it pulls them"}},
		{"a blob on no head", func(f *trivet.StatusFacts) {
			each(f, func(h *trivet.HeadFacts) { h.Own.BlobsMissing, h.Own.Missing = 1, []string{digest} })
		}, []string{"broken blobs: no head that responds holds blob sha256:aa | import"}},
		{"the bucket of images fails", func(f *trivet.StatusFacts) {
			f.Bucket = &trivet.BucketFacts{State: trivet.BlobsFailing, Reason: "no route", Images: 3, Copied: 2}
		}, []string{"warning blobs: the bucket has 2 of 3 images, and copying fails: no route | trivet describe site site"}},
		{"the bucket of images is suspended", func(f *trivet.StatusFacts) {
			f.Bucket = &trivet.BucketFacts{State: trivet.BlobsFailing, Suspended: true}
		}, []string{"warning blobs: nothing is copied to the bucket: it is suspended | trivet patch site site"}},
		{"the bucket of images is not looked at", func(f *trivet.StatusFacts) {
			f.Bucket = &trivet.BucketFacts{State: trivet.BlobsActive, Checked: new(trivet.Duration(5 * time.Hour))}
		}, []string{"warning blobs: no head has looked at the bucket for 5 hours | see the logs"}},
		{"the bucket of images gets copies", func(f *trivet.StatusFacts) {
			f.Bucket = &trivet.BucketFacts{State: trivet.BlobsCopying, Images: 3, Copied: 2}
		}, nil},
		{"a recovery", func(f *trivet.StatusFacts) {
			f.Provisions = map[string]int{"frozen": 2}
			f.Machines["unverified"] = 1
		}, []string{
			"warning provisions: 2 provisions are frozen by a recovery: nothing is done for them | trivet recover list",
			"warning machines: 1 machine is unverified after a recovery: no provision uses it | trivet recover list"}},
		{"no recovery key", func(f *trivet.StatusFacts) { f.RecoveryKey = false }, []string{
			"warning backups: no backup can be made: the site has no recovery key | trivet backup key"}},
		{"no backup", func(f *trivet.StatusFacts) { f.Backups = trivet.BackupStatus{} }, []string{
			"warning backups: no backup is recorded | trivet backup create"}},
		{"an old backup", func(f *trivet.StatusFacts) { f.Backups.Created.Made = now.AddDate(0, 0, -5) }, []string{
			"warning backups: the last backup is 5 days old | trivet backup create"}},
		{"a schedule fails", func(f *trivet.StatusFacts) {
			f.Schedules = []trivet.ScheduleFacts{{Name: "nightly", State: trivet.BackupFailing, Reason: "no bucket"},
				{Name: "hourly", State: trivet.BackupActive}}
		}, []string{"warning backups: the backups of schedule nightly fail: no bucket | trivet describe backupschedule"}},
		{"a schedule is suspended", func(f *trivet.StatusFacts) {
			f.Schedules = []trivet.ScheduleFacts{{Name: "nightly", State: trivet.BackupFailing, Suspended: true}}
		}, []string{"warning backups: schedule nightly is suspended | trivet patch backupschedule nightly"}},
		{"a schedule is late", func(f *trivet.StatusFacts) {
			f.Schedules = []trivet.ScheduleFacts{{Name: "nightly", Overdue: trivet.Duration(3 * time.Hour)}}
		}, []string{"warning backups: schedule nightly has made no backup that is proven, for 3 hours beyond"}},
		{"an old proof", func(f *trivet.StatusFacts) { f.Backups.Verified.Made = now.AddDate(0, 0, -9) }, []string{
			"warning backups: the last backup that is proven to be restorable is 9 days old | trivet backup verify"}},
		{"overdue runs", func(f *trivet.StatusFacts) {
			f.Heads[1].Own.Overdue, f.Heads[1].Own.OverdueRuns = 2, []string{"a-1", "b-1"}
		}, []string{"broken provisions: 2 runs are beyond the deadline of their step: a-1, b-1 | trivet why MACHINE"}},
		{"a provision waits", func(f *trivet.StatusFacts) {
			f.OldestPending = &trivet.PendingFacts{Name: "p1", For: trivet.Duration(7 * time.Hour), Reason: "no machine"}
		}, []string{"warning provisions: provision p1 waits for a machine, for 7 hours: no machine | trivet describe"}},
		{"no platform, and nothing to install", func(f *trivet.StatusFacts) { f.NoPlatform = true }, nil},
		{"no platform", func(f *trivet.StatusFacts) {
			f.NoPlatform, f.Provisions = true, map[string]int{"pending": 1, "running": 2}
		}, []string{"warning provisions: 3 provisions: there is no platform, so that no machine boots the installer | " +
			"trivet platform build"}},
		{"a provision waits for a moment", func(f *trivet.StatusFacts) {
			f.OldestPending = &trivet.PendingFacts{Name: "p1", For: trivet.Duration(time.Hour)}
		}, nil},
		{"a silent agent", func(f *trivet.StatusFacts) {
			f.Heads[1].Own.Silent, f.Heads[1].Own.SilentRuns = 1, []string{"a-1"}
		}, []string{"warning agents: the agent of 1 run is not heard: a-1 | trivet why MACHINE"}},
		{"quarantined machines", func(f *trivet.StatusFacts) { f.Machines["quarantined"] = 3 }, []string{
			"warning machines: 3 machines are quarantined | trivet accept MACHINE"}},
		{"a notifier fails", func(f *trivet.StatusFacts) {
			f.Notifiers = []trivet.NotifierFacts{{Name: "ops", State: "failing", Reason: "no route"}, {Name: "a", State: "active"}}
		}, []string{"warning notifiers: notifier ops is failing: no route | trivet notifier test ops"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := well()
			c.change(f)
			var got []trivet.Invariant
			for _, i := range invariant.Check(f) {
				if i.State != trivet.InvariantHolds {
					got = append(got, i)
				}
			}
			if len(got) != len(c.want) {
				t.Fatalf("got %d, want %d:\n%s", len(got), len(c.want), text(got))
			}
			for i, want := range c.want {
				begin, remedy, _ := strings.Cut(want, " | ")
				line := fmt.Sprintf("%s %s: %s", got[i].State, got[i].Name, got[i].Summary)
				if !strings.HasPrefix(line, begin) || !strings.Contains(got[i].Remedy, remedy) {
					t.Errorf("got %q | %q, want %q", line, got[i].Remedy, want)
				}
			}
		})
	}
}

func text(all []trivet.Invariant) string {
	var b strings.Builder
	for _, i := range all {
		fmt.Fprintf(&b, "%s %s: %s | %s\n", i.State, i.Name, i.Summary, i.Remedy)
	}
	return b.String()
}

// Keys that were rotated, and former boot CAs, are facts that change no state.
func TestKeysAreNoted(t *testing.T) {
	f := well()
	f.Keys = []trivet.KeyFacts{{Name: trivet.BootCAKey, Rotated: now.Add(-72 * time.Hour), Former: 1},
		{Name: trivet.StoreKey, Phase: trivet.KeyDistributing, Reason: "waits for head2"}}
	want := []string{"key boot-ca was replaced on 2026-11-23, 3 days ago",
		"heads accept firmware with 1 former boot CAs: once all has the new one, trivet rotate boot-ca --drop-former",
		"key store is being rotated: waits for head2"}
	for _, i := range invariant.Check(f) {
		if i.Name == "certificates" && (i.State != trivet.InvariantHolds || !slices.Equal(i.Evidence, want)) {
			t.Errorf("%s: %q", i.State, i.Evidence)
		}
	}
}

// A golden page: a head of three is lost, and the blob of an image has one copy.
func TestEvidence(t *testing.T) {
	f := well()
	lose(f, "head2")
	f.Heads[0].Own.BlobsMissing, f.Heads[0].Own.Missing = 1, []string{"sha256:aa"}
	const want = `warning spare
the loss of any of head0, head1 stops writes: 2 of 3 voters respond
- the loss of head1 loses 1 blob, of which no other head that responds has a copy
- the loss of all heads loses what was written since the last backup, 60 minutes ago
next: start head2, or replace it: trivet head replace
`
	for _, i := range invariant.Check(f) {
		if i.Name != "spare" {
			continue
		}
		got := fmt.Sprintf("%s %s\n%s\n", i.State, i.Name, i.Summary)
		for _, e := range i.Evidence {
			got += "- " + e + "\n"
		}
		if got += "next: " + i.Remedy + "\n"; got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}

// Whatever the facts are, each invariant is there once, with a summary, bounded evidence, and a remedy unless it holds.
func TestAnyFacts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := well()
		f.Quorum, f.RecoveryKey = rapid.Bool().Draw(t, "quorum"), rapid.Bool().Draw(t, "key")
		for i := range rapid.IntRange(0, 40).Draw(t, "more heads") {
			f.Heads = append(f.Heads, head(fmt.Sprint("head", i+3)))
		}
		each(f, func(h *trivet.HeadFacts) {
			h.Voter = rapid.Bool().Draw(t, "voter")
			h.State = rapid.SampledFrom([]string{"member", "joining", "removing", "leader"}).Draw(t, "state")
			h.ClockAhead = trivet.SignedDuration(rapid.Int64Range(-1e12, 1e12).Draw(t, "clock"))
			if rapid.Bool().Draw(t, "lost") {
				h.Down, h.Own = true, nil
				return
			}
			h.Own.DiskFree = rapid.Int64Range(0, 4<<30).Draw(t, "disk")
			h.Own.StoreUsed = rapid.Int64Range(0, 9<<30).Draw(t, "store")
			h.Own.BlobsMissing = rapid.IntRange(0, 30).Draw(t, "missing")
			for i := range h.Own.BlobsMissing {
				h.Own.Missing = append(h.Own.Missing, fmt.Sprint("sha256:", i))
			}
			failProbes(h, "head1", rapid.SampledFrom([]string{"dhcp", "tftp", "script", "none"}).Draw(t, "probe"))
		})
		var names []string
		for _, i := range invariant.Check(f) {
			names = append(names, i.Name)
			if i.Summary == "" || len(i.Evidence) > 12 || (i.Remedy == "") != (i.State == trivet.InvariantHolds) {
				t.Errorf("%+v", i)
			}
		}
		if !slices.Equal(names, invariant.Names()) {
			t.Errorf("%q", names)
		}
	})
}
