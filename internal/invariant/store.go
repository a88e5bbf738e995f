package invariant

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/trivet-project/trivet"
)

// unknown is the summary where no head reported the facts.
const unknown = "no head reported it"

// maxLag is how many revisions a copy may be behind, as of the alert TrivetCopyBehind.
const maxLag = 1000

// storeData: every value of the store is authentic, and every copy is current.
func storeData(f *trivet.StatusFacts, r *result) {
	own(f, func(h *trivet.HeadFacts, o *trivet.OwnFacts) {
		if o.Refused > 0 {
			r.broken("see its log for their keys; replace the head: trivet head replace "+h.Name,
				"%s refuses %s of the store, which %s not authenticate: forged, replayed or damaged", h.Name,
				count(o.Refused, "value"), has(o.Refused, "does", "do"))
		}
		for _, a := range o.Alarms {
			r.broken(pageRecovery, "the store of %s has the alarm %s", h.Name, a)
		}
	})
	for _, h := range f.Heads {
		if !h.Down && h.Lag > maxLag {
			r.warn("wait; if it does not become less, check the disk and the link of "+h.Name,
				"%s is %d revisions behind, and serves reads that are old", h.Name, h.Lag)
		}
	}
	r.holds("no value is refused, no copy is behind")
}

// Percentages of the quota of the store, as internal/cluster has them.
const (
	fillingPercent = 70
	fullPercent    = 90
)

// storeSize: the store is within its quota.
func storeSize(f *trivet.StatusFacts, r *result) {
	const remedy = "delete records that are not needed, or start all heads with a larger --store-quota (" + pageHeads +
		", \"When the store is full\")"
	most, quotas := int64(0), map[int64]bool{}
	own(f, func(h *trivet.HeadFacts, o *trivet.OwnFacts) {
		if o.StoreQuota <= 0 {
			return
		}
		percent := o.StoreUsed * 100 / o.StoreQuota
		most, quotas[o.StoreQuota] = max(most, percent), true
		text := fmt.Sprintf("the store of %s uses %s of its quota of %s (%d %%)", h.Name, size(o.StoreUsed),
			size(o.StoreQuota), percent)
		switch {
		case percent >= fullPercent:
			r.broken(remedy, "%s: only deletions and small changes are accepted", text)
		case percent >= fillingPercent:
			r.warn(remedy, "%s", text)
		default:
			r.note("%s; its file has %s", text, size(o.StoreFile))
		}
	})
	if len(quotas) > 1 {
		r.warn("start all heads with the same --store-quota", "the heads have different quotas of the store")
	}
	r.holds("%d %% of the quota at most", most)
}

// diskWarning is the free space below which an operator must know, as of the alert TrivetDiskFull.
const diskWarning = 2 << 30

// disk: each head has space for the store, logs and blobs, on disks that read and write.
func disk(f *trivet.StatusFacts, r *result) {
	least := int64(math.MaxInt64)
	own(f, func(h *trivet.HeadFacts, o *trivet.OwnFacts) {
		for _, text := range o.DiskErrors {
			r.broken(fmt.Sprintf("see the kernel's log there (dmesg), and give it another disk: trivet head replace %s "+
				"(%s, \"A disk that fails\")", h.Name, pageRecovery), "a disk of %s fails: %s", h.Name, text)
		}
		if o.DiskSize <= 0 {
			return
		}
		least = min(least, o.DiskFree)
		remedy := "free some space on the disk of " + h.Name
		switch {
		case o.DiskFree < o.DiskNeeded:
			r.broken(remedy, "the disk of %s is full: %s free, %s needed; it refuses writes", h.Name, size(o.DiskFree),
				size(o.DiskNeeded))
		case o.DiskFree < diskWarning:
			r.warn(remedy, "the disk of %s has %s left", h.Name, size(o.DiskFree))
		default:
			r.note("%s: %s of %s free", h.Name, size(o.DiskFree), size(o.DiskSize))
		}
	})
	if least < math.MaxInt64 {
		r.holds("%s free at least", size(least))
	}
	r.holds(unknown)
}

// Bounds of memory: what a head of 100,000 machines uses, and the share of its host that must be available.
const (
	memoryUsed      = 4 << 30
	memoryAvailable = 5 // percent
)

// memory: each head has the memory that it needs.
func memory(f *trivet.StatusFacts, r *result) {
	most := int64(0)
	own(f, func(h *trivet.HeadFacts, o *trivet.OwnFacts) {
		most = max(most, o.MemoryUsed)
		if o.MemoryUsed > memoryUsed {
			r.warn("docs/limits.md", "%s uses %s of memory", h.Name, size(o.MemoryUsed))
		}
		if o.MemoryTotal > 0 && o.MemoryAvailable*100 < o.MemoryTotal*memoryAvailable {
			r.warn("stop what else runs on the host of "+h.Name+", or give it more memory",
				"the host of %s has %s of %s of memory available", h.Name, size(o.MemoryAvailable), size(o.MemoryTotal))
		}
		r.note("%s: %s used; %s of %s available on its host", h.Name, size(o.MemoryUsed), size(o.MemoryAvailable),
			size(o.MemoryTotal))
	})
	if most > 0 {
		r.holds("a head uses %s at most", size(most))
	}
	r.holds(unknown)
}

// Until when certificates must be valid. Those of members are renewed by the heads long before; CAs are replaced by
// operators.
const (
	memberCertificate = "member"
	memberWarning     = 3 * 24 * time.Hour
	caWarning         = 90 * 24 * time.Hour
)

// certificates: none has expired, or will soon.
func certificates(f *trivet.StatusFacts, r *result) {
	first := time.Duration(math.MaxInt64)
	for _, k := range f.Keys {
		noteKey(f, &k, r)
	}
	own(f, func(h *trivet.HeadFacts, o *trivet.OwnFacts) {
		for _, c := range o.Certificates {
			left := c.Expires.Sub(o.Time)
			first = min(first, left)
			remedy, limit := "see the log of "+h.Name+": it renews the certificate by itself, and its clock must be right",
				memberWarning
			if c.Name != memberCertificate {
				remedy, limit = "docs/security.md", caWarning
			}
			switch {
			case left <= 0:
				r.broken(remedy, "the certificate %s of %s has expired, on %s", c.Name, h.Name, day(c.Expires))
			case left < limit:
				r.warn(remedy, "the certificate %s of %s expires in %s, on %s", c.Name, h.Name, age(left), day(c.Expires))
			}
		}
	})
	if first < math.MaxInt64 {
		r.holds("valid for %s at least", age(first))
	}
	r.holds(unknown)
}

// noteKey says when a key was replaced, and how far its rotation is.
func noteKey(f *trivet.StatusFacts, k *trivet.KeyFacts, r *result) {
	if !k.Rotated.IsZero() {
		r.note("key %s was replaced on %s, %s ago", k.Name, day(k.Rotated), age(f.Time.Sub(k.Rotated)))
	}
	if k.Former > 0 {
		r.note("heads accept firmware with %d former boot CAs: once all has the new one, trivet rotate %s --drop-former",
			k.Former, k.Name)
	}
	if k.Phase != "" {
		r.note("key %s is being rotated: %s", k.Name, cmp.Or(k.Reason, string(k.Phase)))
	}
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }
