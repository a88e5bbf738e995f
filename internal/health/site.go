package health

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
)

// site returns what the records say. Machines and provisions are counted with each change: no list of them is read.
func (s *Source) site(view trivet.Cluster) trivet.StatusFacts {
	f := trivet.StatusFacts{Head: view.Head, Time: time.Now(), Quorum: view.Quorum,
		Machines: s.Tables.CountMachines(), Provisions: s.Tables.CountProvisions(), Networks: s.networks()}
	if site, err := s.Tables.Sites.GetShared(trivet.SiteName); err == nil {
		f.ClusterVersion, f.RecoveryKey = site.Status.ClusterVersion, site.Spec.RecoveryKey != ""
		f.Backups, f.Bucket = site.Status.Backups, bucketOf(site, f.Time)
	}
	if u, err := s.Tables.Upgrades.GetShared(trivet.UpgradeName); err == nil && u.InProgress() {
		f.Upgrade = fmt.Sprintf("%s, %s", u.Spec.Version, cmp.Or(u.Status.Reason, string(u.Status.Phase)))
	}
	f.NoPlatform = true
	for p := range s.Tables.Platforms.AllShared() {
		f.NoPlatform = false
		if problem := p.UpgradeProblem(); problem != "" {
			f.Platforms = append(f.Platforms, trivet.PlatformFacts{Name: p.Name, Reason: problem})
		}
	}
	for k := range s.Tables.Keys.AllShared() {
		f.Keys = append(f.Keys, trivet.KeyFacts{Name: k.Name, Phase: k.Status.Phase, Reason: k.Status.Reason,
			Rotated: k.Status.Rotated, Former: len(k.Status.Former)})
	}
	if p := s.Tables.OldestPending(); p != nil {
		f.OldestPending = &trivet.PendingFacts{Name: p.ShortName(), Reason: p.Status.Reason,
			For: trivet.Duration(max(0, f.Time.Sub(p.Created)).Round(time.Second))}
	}
	for n := range s.Tables.Notifiers.AllShared() {
		f.Notifiers = append(f.Notifiers, trivet.NotifierFacts{Name: n.Name, State: n.Status.State,
			Reason: n.Status.Reason})
	}
	for b := range s.Tables.Schedules.AllShared() {
		f.Schedules = append(f.Schedules, trivet.ScheduleFacts{Name: b.Name, State: b.Status.State,
			Reason: b.Status.Reason, Suspended: b.Spec.Suspend, Overdue: overdue(b, f.Time)})
	}
	return f
}

// bucketOf returns the state of the copies in the bucket of the site; nil: it has none.
func bucketOf(site *trivet.Site, now time.Time) *trivet.BucketFacts {
	if site.Spec.Blobs == nil {
		return nil
	}
	f := &trivet.BucketFacts{Suspended: site.Spec.Blobs.Suspend}
	if st := site.Status.Blobs; st != nil {
		f.State, f.Reason, f.Images, f.Copied = st.State, st.Reason, st.Images, st.Copied
		if !st.Checked.IsZero() {
			since := trivet.Duration(max(0, now.Sub(st.Checked)).Round(time.Second))
			f.Checked = &since
		}
	}
	return f
}

// overdue returns for how long a schedule has had no backup that was proven, beyond twice its interval.
func overdue(b *trivet.BackupSchedule, now time.Time) trivet.Duration {
	last := b.Created
	if b.Status.Last != nil {
		last = b.Status.Last.Made
	}
	return trivet.Duration(max(0, now.Sub(last)-2*time.Duration(b.Spec.Every)-time.Hour).Round(time.Second))
}

// networks returns the networks, in order of name, with the heads that have an address in each.
func (s *Source) networks() (all []trivet.NetworkFacts) {
	heads := slices.Collect(s.Tables.Heads.AllShared())
	for n := range s.Tables.Networks.AllShared() {
		f := trivet.NetworkFacts{Name: n.Name, DHCP: n.Spec.DHCPOrDefault()}
		for _, h := range heads {
			if h.Serves() && addressIn(h, n).IsValid() {
				f.Heads = append(f.Heads, h.Name)
			}
		}
		slices.Sort(f.Heads)
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b trivet.NetworkFacts) int { return strings.Compare(a.Name, b.Name) })
	return all
}
