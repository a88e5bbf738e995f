package invariant

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
)

// Ages of backups from which on an operator must know.
const (
	maxCreated  = 48 * time.Hour
	maxVerified = 8 * 24 * time.Hour
)

// backups: there is a recent backup, a recent one is proven to be restorable, and no schedule fails.
func backups(f *trivet.StatusFacts, r *result) {
	const remedy, page = "trivet backup create --to DIR --blobs", " (docs/backup.md)"
	b := f.Backups
	if !f.RecoveryKey {
		r.warn("trivet backup key"+page, "no backup can be made: the site has no recovery key")
		return
	}
	switch {
	case b.Created == nil:
		r.warn(remedy+page, "no backup is recorded")
	case f.Time.Sub(b.Created.Made) > maxCreated:
		r.warn(remedy+page, "the last backup is %s old", age(f.Time.Sub(b.Created.Made)))
	}
	schedules(f, r)
	prove := "trivet backup verify BACKUP --key FILE" + page
	switch {
	case b.Verified == nil:
		r.warn(prove, "no backup is proven to be restorable")
	case f.Time.Sub(b.Verified.Made) > maxVerified:
		r.warn(prove, "the last backup that is proven to be restorable is %s old", age(f.Time.Sub(b.Verified.Made)))
	}
	for _, e := range []struct {
		what string
		*trivet.BackupEvent
	}{{"created", b.Created}, {"proven restorable", b.Verified}} {
		if e.BackupEvent != nil {
			r.note("last %s: %s, revision %d, %s old", e.what, e.Backup, e.Revision, age(f.Time.Sub(e.Made)))
		}
	}
	if b.Created != nil && b.Verified != nil {
		r.holds("the last backup is %s old, the last one proven restorable %s", age(f.Time.Sub(b.Created.Made)),
			age(f.Time.Sub(b.Verified.Made)))
	}
}

// schedules: each makes backups that are proven.
func schedules(f *trivet.StatusFacts, r *result) {
	all := slices.Clone(f.Schedules)
	slices.SortFunc(all, func(a, b trivet.ScheduleFacts) int { return strings.Compare(a.Name, b.Name) })
	for _, s := range all {
		see := "trivet describe backupschedule " + s.Name
		switch {
		case s.Suspended:
			r.warn("trivet patch backupschedule "+s.Name+` '{"spec": {"suspend": false}}'`, "schedule %s is suspended", s.Name)
		case s.State == trivet.BackupFailing:
			r.warn(see, "the backups of schedule %s fail%s", s.Name, because(s.Reason))
		case s.Overdue > 0:
			r.warn(see, "schedule %s has made no backup that is proven, for %s beyond twice its interval", s.Name,
				age(time.Duration(s.Overdue)))
		}
	}
}

// maxUnchecked is the age of the last look at the copies in the bucket from which on an operator must know.
const maxUnchecked = 3 * time.Hour

// bucket: that of the site, if it has one, has a copy of each image.
func bucket(b *trivet.BucketFacts, r *result) {
	const see, page = "trivet describe site site", " (docs/images.md)"
	switch {
	case b == nil:
		return
	case b.Suspended:
		r.warn(`trivet patch site site '{"spec": {"blobs": {"suspend": false}}}'`+page,
			"nothing is copied to the bucket: it is suspended")
	case b.State == trivet.BlobsFailing:
		r.warn(see+page, "the bucket has %d of %s, and copying fails%s", b.Copied, count(b.Images, "image"),
			because(b.Reason))
	case b.Checked != nil && b.Checked.D() > maxUnchecked:
		r.warn("see the logs of the heads", "no head has looked at the bucket for %s", age(b.Checked.D()))
	case b.State == trivet.BlobsActive && b.Checked != nil:
		r.note("the bucket has a copy of %s, compared %s ago", count(b.Copied, "image"), age(b.Checked.D()))
	default:
		r.note("the bucket has a copy of %d of %s so far", b.Copied, count(b.Images, "image"))
	}
}

// maxPending is how long a provision may wait for a machine, as of the alert TrivetQueueOld.
const maxPending = 6 * time.Hour

// pageDecide is what to do about what a recovery has left.
const pageDecide = "trivet recover list (" + pageRecovery + ", \"Afterwards\")"

// provisions: no run is beyond its deadline, and none waits for long, or for a decision.
func provisions(f *trivet.StatusFacts, r *result) {
	late, runs := 0, []string(nil)
	own(f, func(_ *trivet.HeadFacts, o *trivet.OwnFacts) {
		if o.Overdue > late {
			late, runs = o.Overdue, o.OverdueRuns
		}
	})
	if late > 0 {
		r.broken("trivet why MACHINE; and the log of the heads: deadlines are not carried out",
			"%s %s beyond the deadline of %s step: %s", count(late, "run"), has(late, "is", "are"), has(late, "its", "their"),
			names(runs))
	}
	if n := f.Provisions[string(trivet.ProvisionFrozen)]; n > 0 {
		r.warn(pageDecide, "%s %s frozen by a recovery: nothing is done for %s", count(n, "provision"), has(n, "is", "are"),
			has(n, "it", "them"))
	}
	atWork := f.Provisions[string(trivet.ProvisionPending)] + f.Provisions[string(trivet.ProvisionRunning)]
	if f.NoPlatform && atWork > 0 {
		r.warn("build one, and import it: trivet platform build --out DIR; trivet platform import DIR --name NAME",
			"%s: there is no platform, so that no machine boots the installer", count(atWork, "provision"))
	}
	if p := f.OldestPending; p != nil {
		text := fmt.Sprintf("provision %s waits for a machine, for %s%s", p.Name, age(p.For.D()), because(p.Reason))
		if p.For.D() > maxPending {
			r.warn("trivet describe provision "+p.Name, "%s", text)
		} else {
			r.note("%s", text)
		}
	}
	for _, state := range []trivet.ProvisionState{trivet.ProvisionPending, trivet.ProvisionRunning,
		trivet.ProvisionSucceeded, trivet.ProvisionFailed} {
		if n := f.Provisions[string(state)]; n > 0 {
			r.note("%s: %d", state, n)
		}
	}
	r.holds("%d running, %d waiting, none stuck", f.Provisions[string(trivet.ProvisionRunning)],
		f.Provisions[string(trivet.ProvisionPending)])
}

// agents: the agents of all runs are heard. Silence counts where every head that knows the run does not hear it.
func agents(f *trivet.StatusFacts, r *result) {
	silent, runs := 0, []string(nil)
	own(f, func(_ *trivet.HeadFacts, o *trivet.OwnFacts) {
		if o.Silent > silent {
			silent, runs = o.Silent, o.SilentRuns
		}
	})
	if silent > 0 {
		r.warn("trivet why MACHINE", "the %s of %s %s not heard: %s", has(silent, "agent", "agents"), count(silent, "run"),
			has(silent, "is", "are"), names(runs))
	}
	r.holds("the agents of all runs are heard")
}

// machineStates are the states of machines in the order in which they are shown.
var machineStates = []trivet.MachineState{trivet.MachineDiscovered, trivet.MachineAvailable, trivet.MachineClaimed,
	trivet.MachineProvisioning, trivet.MachineActive, trivet.MachineReleasing, trivet.MachineQuarantined,
	trivet.MachineUnverified}

// machines: none is quarantined, or unverified after a recovery.
func machines(f *trivet.StatusFacts, r *result) {
	var states []string
	total := 0
	for _, s := range machineStates {
		if n := f.Machines[string(s)]; n > 0 {
			states, total = append(states, fmt.Sprintf("%d %s", n, s)), total+n
		}
	}
	if n := f.Machines[string(trivet.MachineQuarantined)]; n > 0 {
		r.warn("trivet get machines --field status.state=quarantined; after the repair: trivet accept MACHINE",
			"%s %s quarantined", count(n, "machine"), has(n, "is", "are"))
	}
	if n := f.Machines[string(trivet.MachineUnverified)]; n > 0 {
		r.warn(pageDecide, "%s %s unverified after a recovery: no provision uses %s", count(n, "machine"),
			has(n, "is", "are"), has(n, "it", "them"))
	}
	if total == 0 {
		r.holds("no machines")
		return
	}
	all := fmt.Sprintf("%s: %s", count(total, "machine"), strings.Join(states, ", "))
	r.note("%s", all)
	r.holds("%s", all)
}

// notifiers: all of them deliver.
func notifiers(f *trivet.StatusFacts, r *result) {
	all := slices.Clone(f.Notifiers)
	slices.SortFunc(all, func(a, b trivet.NotifierFacts) int { return strings.Compare(a.Name, b.Name) })
	for _, n := range all {
		if n.State == trivet.NotifierFailing || n.State == trivet.NotifierDisabled {
			r.warn("trivet notifier test "+n.Name, "notifier %s is %s%s", n.Name, n.State, because(n.Reason))
		}
	}
	if len(all) == 0 {
		r.holds("there are no notifiers")
	}
	r.holds("%s %s", count(len(all), "notifier"), has(len(all), "delivers", "deliver"))
}
