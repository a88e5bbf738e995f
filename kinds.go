package trivet

import (
	"fmt"
	"slices"
	"strings"
)

// KindInfo describes a kind to the code that is generic over all kinds.
type KindInfo struct {
	Kind   Kind   // the name of its Go type
	Plural string // in URLs and on the command line
	Short  string // alternative to Plural on the command line; optional
	Scope  Scope
	// ReadOnly kinds are written by Trivet only.
	ReadOnly bool
	// Reader and Writer are the lowest roles that may read and write the records.
	Reader, Writer AccountRole
	// New returns an empty record.
	New func() Record
	// Since is the release that added the kind, FieldsSince the releases that added fields to it later, by path
	// ("spec.rack"; "spec.nics.mac" is of any element of a list). Both are refused before all heads have that release.
	Since       Release
	FieldsSince map[string]Release
	// SpecApart is the release since which the specs of the records have keys of their own in the store, for a kind
	// whose status is written often and whose spec seldom changes; empty: a record is one value.
	SpecApart Release
	// FormerSince is the release since which the kind's records that are history, as a machine's runs before the last
	// one, are not held in memory by the heads; for a kind of which there are such records.
	FormerSince Release
}

// Scope is where the names of a kind's records are unique.
type Scope string

// The scopes: the whole cluster, or the project that a record belongs to.
const (
	ScopeCluster Scope = "cluster"
	ScopeProject Scope = "project"
)

// Kinds are all kinds of records. A kind that is listed here is stored, served by the API, watched, documented by
// OpenAPI, completed and printed by the command line, and authorized. The defaults are ScopeCluster, AccountViewer as
// Reader and AccountOperator as Writer.
var Kinds = []KindInfo{
	kind[Machine](KindInfo{Plural: "machines", Short: "m",
		FieldsSince: map[string]Release{"spec.bmc.console": "0.3", "spec.interfaces": "0.3.1",
			"status.formerNames": RenameRelease, "status.powerError": PowerErrorRelease,
			"status.inventory.disks.health": DiskHealthRelease}}),
	kind[Template](KindInfo{Plural: "templates", Short: "t", Scope: ScopeProject}),
	kind[Provision](KindInfo{Plural: "provisions", Short: "p", Scope: ScopeProject, SpecApart: "0.3",
		FieldsSince: map[string]Release{"spec.count": "0.3.1", "spec.maxInFlight": "0.3.1", "status.memberOf": "0.3.1",
			"spec.ifNoMachine": "0.3.1", "status.paused": PauseRelease, "status.replaced": "0.3.1", "spec.race": "0.3.1",
			"status.race": "0.3.1", "status.raceNote": "0.3.1", "spec.hedge": "0.3.1", "status.hedge": "0.3.1",
			"status.withdrawn": "0.3.1", "spec.head": PromoteRelease, "status.failure.eventLog": EventLogRelease}}),
	kind[Workflow](KindInfo{Plural: "workflows", Short: "w", Scope: ScopeProject, ReadOnly: true, SpecApart: "0.3",
		FormerSince: "0.3.1",
		FieldsSince: map[string]Release{"spec.continues": "0.3.1", "spec.redeploys": "0.3.1",
			"spec.seed.interfaces": "0.3.1",
			"status.paused":        PauseRelease, "status.failure.eventLog": EventLogRelease}}),
	kind[Image](KindInfo{Plural: "images", Short: "i", Scope: ScopeProject}),
	kind[Platform](KindInfo{Plural: "platforms",
		FieldsSince: map[string]Release{"spec.agent": "0.3.1", "spec.back": "0.3.1", "status.upgrade": "0.3.1"}}),
	kind[Network](KindInfo{Plural: "networks", Short: "n"}),
	kind[Address](KindInfo{Plural: "addresses", ReadOnly: true,
		FieldsSince: map[string]Release{"spec.provision": "0.3.1"}}),
	kind[MAC](KindInfo{Plural: "macs", ReadOnly: true}),
	kind[Site](KindInfo{Plural: "sites", Writer: AccountAdmin,
		FieldsSince: map[string]Release{"spec.recoveryKey": "0.3.1", "spec.lateAfter": "0.3.1",
			"spec.raceBudget": "0.3.1", "spec.blobs": "0.3.1",
			"spec.release": SinceRelease}}),
	kind[Head](KindInfo{Plural: "heads", ReadOnly: true, Writer: AccountAdmin,
		FieldsSince: map[string]Release{"spec.bmc": StandbyRelease, "spec.takeover": StandbyRelease,
			"status.machine": PromoteRelease, "status.machineUID": PromoteRelease, "status.run": PromoteRelease}}),
	kind[Upgrade](KindInfo{Plural: "upgrades", ReadOnly: true, Writer: AccountAdmin, Since: UpgradeRelease}),
	kind[Key](KindInfo{Plural: "keys", ReadOnly: true, Writer: AccountAdmin, Since: "0.3",
		FieldsSince: map[string]Release{"spec.grace": "0.3.1"}}),
	kind[Secret](KindInfo{Plural: "secrets", Scope: ScopeProject, Writer: AccountAdmin}),
	kind[Token](KindInfo{Plural: "tokens", ReadOnly: true, Writer: AccountAdmin}),
	kind[Account](KindInfo{Plural: "accounts", Writer: AccountAdmin}),
	kind[Notifier](KindInfo{Plural: "notifiers", Writer: AccountAdmin, Since: "0.3"}),
	kind[BackupSchedule](KindInfo{Plural: "backupschedules", Writer: AccountAdmin, Since: BackupScheduleRelease}),
	kind[Event](KindInfo{Plural: "events", ReadOnly: true}),
}

// kind completes the description of the kind whose Go type is T.
func kind[T any, P interface {
	*T
	Record
}](info KindInfo) KindInfo {
	info.New = func() Record { return P(new(T)) }
	info.Kind = KindOf(info.New())
	if info.Scope == "" {
		info.Scope = ScopeCluster
	}
	if info.Reader == "" {
		info.Reader = AccountViewer
	}
	if info.Writer == "" {
		info.Writer = AccountOperator
	}
	info.gate("annotations", AnnotationsRelease)
	info.gate("managed", ManagedRelease)
	info.gate("creator", ManagedRelease)
	return info
}

// gate refuses a field of Meta, which a later release than the kind's has added, before all heads know it. Those of
// kinds that only Trivet writes have none.
func (k *KindInfo) gate(field string, since Release) {
	if k.ReadOnly || k.Since.Compare(since) >= 0 {
		return
	}
	if k.FieldsSince == nil {
		k.FieldsSince = map[string]Release{}
	}
	k.FieldsSince[field] = since
}

// LookupKind finds a kind by its plural, short name or kind, in upper or lower case.
func LookupKind(name string) (KindInfo, error) {
	want := strings.ToLower(name)
	i := slices.IndexFunc(Kinds, func(k KindInfo) bool {
		return want != "" && (k.Plural == want || k.Short == want || strings.ToLower(string(k.Kind)) == want)
	})
	if i < 0 {
		var names []string
		for _, k := range Kinds {
			names = append(names, k.Plural)
		}
		return KindInfo{}, fmt.Errorf("%w: unknown kind %q; the kinds are %s", ErrInvalid, name,
			strings.Join(names, ", "))
	}
	return Kinds[i], nil
}

// ScopeOf returns the scope of a kind.
func ScopeOf(kind Kind) Scope {
	for i := range Kinds {
		if Kinds[i].Kind == kind {
			return Kinds[i].Scope
		}
	}
	return ScopeCluster
}

// KindOf returns the kind of a record.
func KindOf(r Record) Kind {
	name := fmt.Sprintf("%T", r)
	return Kind(name[strings.LastIndexByte(name, '.')+1:])
}
