package trivet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Upgrade replaces the program of all heads by another version, one head after the other. There is one record, named
// "heads"; trivet upgrade writes it.
type Upgrade struct {
	Meta
	Spec   UpgradeSpec   `json:"spec"`
	Status UpgradeStatus `json:"status,omitzero"`
}

// UpgradeName is the name of the one Upgrade record.
const UpgradeName = "heads"

// UpgradeRelease is the release that added the kind Upgrade.
const UpgradeRelease Release = "0.3.1"

// UpgradeSpec is what operators requested.
type UpgradeSpec struct {
	// Run counts the upgrades that were requested.
	Run int64 `json:"run,omitempty"`
	// Version is that of the new program, as it prints it.
	Version string `json:"version,omitempty"`
	// Release is what the new program understands: the cluster's version afterwards.
	Release Release `json:"release,omitempty"`
	// Programs are the new program for each architecture of the heads.
	Programs []Program `json:"programs,omitempty"`
	// Soak is how long the first full head must be well with the new program before the next one gets it.
	Soak Duration `json:"soak,omitempty"`
	// Paused: no further head gets the new program.
	Paused bool `json:"paused,omitempty"`
	// Rollback: the heads go back to the program that they had.
	Rollback bool `json:"rollback,omitempty"`
	// KeepPlatforms: the platforms keep the program that they have.
	KeepPlatforms bool `json:"keepPlatforms,omitempty"`
}

// Program is a program of a head.
type Program struct {
	// Arch is the architecture: amd64 or arm64.
	Arch string `json:"arch"`
	// Blob is its content.
	Blob BlobRef `json:"blob"`
}

// The bounds of [UpgradeSpec.Soak], and its default.
const (
	DefaultSoak = Duration(time.Minute)
	MaxSoak     = Duration(7 * 24 * time.Hour)
)

// ArchitecturesOfHeads returns those of which there are programs.
func ArchitecturesOfHeads() []string { return []string{"amd64", "arm64"} }

// ProgramFor returns the blob of the new program for an architecture.
func (s *UpgradeSpec) ProgramFor(arch string) (BlobRef, bool) {
	i := slices.IndexFunc(s.Programs, func(p Program) bool { return p.Arch == arch })
	if i < 0 {
		return BlobRef{}, false
	}
	return s.Programs[i].Blob, true
}

// SoakOrDefault returns Soak, or its default. A platform must be well for as long before the next one.
func (s *UpgradeSpec) SoakOrDefault() Duration { return cmp.Or(s.Soak, DefaultSoak) }

// UpgradePhase is the phase of an upgrade.
type UpgradePhase string

// The phases. An upgrade goes from staging over switching to done; or, from each of them, over reverting to reverted.
const (
	UpgradeStaging   UpgradePhase = "staging"   // all heads get the new program, and none runs it yet
	UpgradeSwitching UpgradePhase = "switching" // one head after the other starts again with it
	UpgradeDone      UpgradePhase = "done"      // all heads run it, and the cluster's version is that of its release
	UpgradeReverting UpgradePhase = "reverting" // one head after the other starts again with the former program
	UpgradeReverted  UpgradePhase = "reverted"  // all heads that have a former program run it
)

// UpgradeStatus is the progress of an upgrade.
type UpgradeStatus struct {
	// Run is the upgrade that this is about: see [UpgradeSpec.Run].
	Run int64 `json:"run,omitempty"`
	// Phase is that of the upgrade.
	Phase UpgradePhase `json:"phase,omitempty"`
	// Reason is what the upgrade waits for.
	Reason string `json:"reason,omitempty"`
	// Cause is why the heads go back, or went back, to their former program.
	Cause string `json:"cause,omitempty"`
	// Head is the head that is to start again now; empty: none.
	Head string `json:"head,omitempty"`
	// Former is the release that all heads had when the upgrade began, which the cluster uses until it is complete.
	Former Release `json:"former,omitempty"`
	// Broken are the invariants of trivet status that did not hold when the upgrade began. It does not wait for them.
	Broken []string `json:"broken,omitempty"`
	// Started is when the upgrade began.
	Started time.Time `json:"started,omitzero"`
	// Ended is when the upgrade was complete, or reverted.
	Ended time.Time `json:"ended,omitzero"`
	// Platforms is when, after all heads, all platforms that follow had the new program. Until then the heads keep it.
	Platforms time.Time `json:"platforms,omitzero"`
	// Events counts the events of this record.
	Events int64 `json:"events,omitempty"`
}

// InProgress reports whether the upgrade, or its rollback, has not ended.
func (u *Upgrade) InProgress() bool {
	switch {
	case u.Spec.Run == 0:
		return false
	case u.Spec.Run != u.Status.Run:
		return true
	case u.Status.Phase == UpgradeDone:
		return u.Spec.Rollback
	}
	return u.Status.Phase != UpgradeReverted
}

// Begun reports whether the upgrade, or its rollback, has begun, and has not ended: it may start heads again.
func (u *Upgrade) Begun() bool { return u.InProgress() && u.Spec.Run == u.Status.Run }

// RunsNew reports whether a head is known to run the new program.
func (u *Upgrade) RunsNew(h *Head) bool {
	p := h.Status.Program
	if p == nil || p.Run != u.Spec.Run {
		return false
	}
	if p.Manual {
		return h.Status.Version == u.Spec.Version
	}
	blob, ok := u.Spec.ProgramFor(p.Arch)
	return ok && p.Running == blob.Digest
}

// NeedsPrograms reports whether heads or platforms may still have to get the new program.
func (u *Upgrade) NeedsPrograms() bool {
	isNew := u.Spec.Run != u.Status.Run
	return u.PlatformsFollow() || u.InProgress() && (isNew || u.Status.Phase == UpgradeStaging ||
		u.Status.Phase == UpgradeSwitching)
}

// PlatformsFollow reports whether all heads run the new program, and platforms may still have to get it.
func (u *Upgrade) PlatformsFollow() bool {
	return u.Spec.Run > 0 && u.Spec.Run == u.Status.Run && u.Status.Phase == UpgradeDone && !u.Spec.Rollback &&
		!u.Spec.KeepPlatforms && u.Status.Platforms.IsZero()
}

// HeadProgram is what a head reports of its program while there is an upgrade.
type HeadProgram struct {
	// Run is the upgrade that the rest is about: see [UpgradeSpec.Run].
	Run int64 `json:"run,omitempty"`
	// Arch is the head's architecture.
	Arch string `json:"arch,omitempty"`
	// Running is the digest of the program that the head runs.
	Running string `json:"running,omitempty"`
	// Staged: the head has the new program.
	Staged bool `json:"staged,omitempty"`
	// Former: the head has the program that it ran before the upgrade, and can go back to it.
	Former bool `json:"former,omitempty"`
	// Manual: the head does not permit upgrades by command. Its program is replaced on its host.
	Manual bool `json:"manual,omitempty"`
	// Failed: the head cannot run the new program, or has given it up.
	Failed bool `json:"failed,omitempty"`
	// Problem is why it failed, or why the head does not have the new program yet.
	Problem string `json:"problem,omitempty"`
}

// maxVersion bounds the text of a version.
const maxVersion = 128

// Validate checks an upgrade by itself.
func (u *Upgrade) Validate() error {
	var p problems
	if u.Name != UpgradeName {
		p.add("name", "is %q; the only upgrade is named %q", u.Name, UpgradeName)
	}
	s := &u.Spec
	if s.Version == "" || len(s.Version) > maxVersion || strings.ContainsFunc(s.Version, isNotVersion) {
		p.add("spec.version", "%.80q must be a version as trivet version prints it", s.Version)
	}
	if s.Release == "" || strings.Trim(string(s.Release), "0123456789.") != "" || len(s.Release) > maxVersion {
		p.add("spec.release", "%.80q must be a release such as 0.3.1", s.Release)
	}
	if s.Soak < 0 || s.Soak > MaxSoak {
		p.add("spec.soak", "is %s; at most %s", s.Soak, MaxSoak)
	}
	if len(s.Programs) == 0 {
		p.add("spec.programs", "is empty; it needs the program for each architecture of the heads")
	}
	seen := map[string]bool{}
	for i, program := range s.Programs {
		field := fmt.Sprintf("spec.programs[%d]", i)
		p.oneOf(field+".arch", program.Arch, ArchitecturesOfHeads()...)
		if seen[program.Arch] {
			p.add(field+".arch", "is %q, which another one has", program.Arch)
		}
		seen[program.Arch] = true
	}
	return p.err()
}

func isNotVersion(r rune) bool { return r <= ' ' || r > '~' }

// AddedSince returns what was added after a release, up to another one: kinds, and fields as "machine.spec.rack".
func AddedSince(former, now Release) (all []string) {
	within := func(r Release) bool { return r != "" && r.Compare(former) > 0 && r.Compare(now) <= 0 }
	for i := range Kinds {
		k := &Kinds[i]
		kind := strings.ToLower(string(k.Kind))
		if within(k.Since) {
			all = append(all, kind)
			continue
		}
		for path, since := range k.FieldsSince {
			if within(since) {
				all = append(all, kind+"."+path)
			}
		}
	}
	slices.Sort(all)
	return all
}
