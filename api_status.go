package trivet

import "time"

// StatusReport is whether all is well: invariants with their states, and the facts that they were checked by. One head
// gathers it, of itself and of the heads that it reaches.
type StatusReport struct {
	Cluster    string         `json:"cluster"` // its ID
	State      InvariantState `json:"state"`   // the worst of the invariants
	Invariants []Invariant    `json:"invariants"`
	Facts      StatusFacts    `json:"facts"`
}

// InvariantState is the state of an invariant.
type InvariantState string

// The states of invariants.
const (
	InvariantHolds InvariantState = "ok"
	// InvariantWarning: all works; the next failure would break something, or it will not last.
	InvariantWarning InvariantState = "warning"
	InvariantBroken  InvariantState = "broken" // something does not work
)

// Invariant is a condition that holds where all is well.
type Invariant struct {
	Name  string         `json:"name"`  // identifies it, "quorum"
	State InvariantState `json:"state"` // whether it holds
	// Summary is one line: what holds, or what does not.
	Summary string `json:"summary"`
	// Evidence are the facts behind the state, bounded in number.
	Evidence []string `json:"evidence,omitempty"`
	// Remedy is the command to run next, or the page of the documentation; empty where the invariant holds.
	Remedy string `json:"remedy,omitempty"`
}

// StatusFacts is what one head knows of the site, and what the heads report of themselves. What cannot be found out is
// a fact, too: a head that does not respond has no Own, and a Problem.
type StatusFacts struct {
	Head           string    `json:"head"`                     // that gathered them
	Time           time.Time `json:"time"`                     // by its clock
	Quorum         bool      `json:"quorum"`                   // the head is connected to a leader
	ClusterVersion Release   `json:"clusterVersion,omitempty"` // the lowest release of the heads
	// Upgrade is the upgrade in progress: its version, phase and what it waits for; empty: there is none.
	Upgrade string `json:"upgrade,omitempty"`
	// Platforms are those that do not have the program of the last upgrade, and why.
	Platforms []PlatformFacts `json:"platforms,omitempty"`
	// NoPlatform: the site has no platform, so that machines have nothing to boot that would install them.
	NoPlatform bool           `json:"noPlatform,omitempty"`
	Heads      []HeadFacts    `json:"heads"` // without those that were removed
	Networks   []NetworkFacts `json:"networks,omitempty"`
	// Machines and Provisions are their numbers by state.
	Machines      map[string]int  `json:"machines,omitempty"`
	Provisions    map[string]int  `json:"provisions,omitempty"`    // their numbers by state
	OldestPending *PendingFacts   `json:"oldestPending,omitempty"` // the provision that waits for longest
	Notifiers     []NotifierFacts `json:"notifiers,omitempty"`
	// Keys are the keys of the cluster that were rotated, or are.
	Keys []KeyFacts `json:"keys,omitempty"`
	// Schedules are the schedules of backups.
	Schedules []ScheduleFacts `json:"schedules,omitempty"`
	// Bucket is that of the site, for copies of images; nil: it has none.
	Bucket *BucketFacts `json:"bucket,omitempty"`
	// RecoveryKey: the site has one, so that backups can be made.
	RecoveryKey bool         `json:"recoveryKey"`
	Backups     BackupStatus `json:"backups,omitzero"`
}

// PlatformFacts is a platform that does not have the program of the last upgrade.
type PlatformFacts struct {
	Name   string `json:"name"`   // of its Platform record
	Reason string `json:"reason"` // why it does not have that program
}

// HeadFacts is one head as the gathering one knows it.
type HeadFacts struct {
	Name  string `json:"name"`  // of its Head record
	Role  string `json:"role"`  // "voter", "standby" or "witness"
	State string `json:"state"` // as in [HeadView]
	// Voter: its member of the store votes.
	Voter   bool    `json:"voter"`
	Version string  `json:"version,omitempty"` // of its program
	Release Release `json:"release,omitempty"` // what its program understands
	// LastHeard is the time since its last message; nil: none since the gathering head started.
	LastHeard *Duration `json:"lastHeard,omitempty"`
	// Problem is why it does not respond, or what its membership waits for; empty: it responds.
	Problem string `json:"problem,omitempty"`
	Down    bool   `json:"down,omitempty"` // it does not respond
	// ClockAhead is how far its clock is ahead of that of the gathering head; negative: behind it.
	ClockAhead SignedDuration `json:"clockAhead,omitempty"`
	Lag        int64          `json:"lag,omitempty"` // revisions of the store that its copy is behind
	// Own is what it reports of itself; nil: it does not respond, it is a witness, or its release has no status.
	Own *OwnFacts `json:"own,omitempty"`
}

// OwnFacts is what a head reports of itself.
type OwnFacts struct {
	Time    time.Time `json:"time"`              // by its clock
	Quorum  bool      `json:"quorum"`            // it is connected to a leader
	Refused int       `json:"refused,omitempty"` // values of the store that do not authenticate
	Alarms  []string  `json:"alarms,omitempty"`  // of its member of the store

	DiskFree   int64 `json:"diskFree"`   // bytes of the file system of its data
	DiskSize   int64 `json:"diskSize"`   // bytes
	DiskNeeded int64 `json:"diskNeeded"` // bytes below which it refuses writes
	// DiskErrors are what its disks could not read or write in the last day, bounded in number.
	DiskErrors []string `json:"diskErrors,omitempty"`

	MemoryUsed      int64 `json:"memoryUsed,omitempty"`      // bytes that its process has resident
	MemoryAvailable int64 `json:"memoryAvailable,omitempty"` // bytes of its host that programs may still use
	MemoryTotal     int64 `json:"memoryTotal,omitempty"`     // bytes of its host

	StoreUsed  int64 `json:"storeUsed"`  // bytes of the quota that are in use
	StoreFile  int64 `json:"storeFile"`  // bytes of the file
	StoreQuota int64 `json:"storeQuota"` // bytes

	Certificates []CertificateFacts `json:"certificates,omitempty"`

	BlobsMissing int      `json:"blobsMissing"`      // blobs that records refer to and that it does not hold
	Missing      []string `json:"missing,omitempty"` // their digests, bounded in number

	// Takeover is what it needs to take over from the other full head; nil: that is not requested.
	Takeover *TakeoverFacts `json:"takeover,omitempty"`

	// Segments are those without a Network from which clients sent DHCP packets to it, bounded in number.
	Segments []SegmentFacts `json:"segments,omitempty"`

	// Probes are what it found by a synthetic boot in each network that it has an address in.
	Probes []ProbeFacts `json:"probes,omitempty"`

	Overdue     int      `json:"overdue,omitempty"`     // runs that are beyond the deadline of their step
	OverdueRuns []string `json:"overdueRuns,omitempty"` // their names, bounded in number
	Silent      int      `json:"silent,omitempty"`      // runs whose agents are not heard
	SilentRuns  []string `json:"silentRuns,omitempty"`  // their names, bounded in number
}

// SegmentFacts is a segment from which DHCP clients ask, and of which there is no Network.
type SegmentFacts struct {
	// Address is that of its relay, or of the head's interface: the Network of the segment contains it.
	Address string `json:"address"`
	// Clients are the MACs of the last clients, bounded in number.
	Clients []string  `json:"clients"`
	Last    time.Time `json:"last"` // when the last one asked, by the head's clock
}

// TakeoverFacts is what a head that may take over knows of that.
type TakeoverFacts struct {
	After Duration `json:"after"`          // without a quorum
	From  string   `json:"from,omitempty"` // the other full head; empty: there is none, or several
	// Problem is why it could not take over at the last check, about once a minute; empty: it could.
	Problem string `json:"problem,omitempty"`
}

// KeyFacts is a key of the cluster that was rotated, or is.
type KeyFacts struct {
	Name string `json:"name"` // of its Key record
	// Phase is that of the rotation in progress, and Reason what it waits for.
	Phase  KeyPhase `json:"phase,omitempty"`
	Reason string   `json:"reason,omitempty"` // what the rotation waits for
	// Rotated is when the last rotation was complete.
	Rotated time.Time `json:"rotated,omitzero"`
	// Former is how many former boot CAs firmware may still trust.
	Former int `json:"former,omitempty"`
}

// CertificateFacts is a certificate that a head uses.
type CertificateFacts struct {
	Name    string    `json:"name"`    // what it is used for
	Expires time.Time `json:"expires"` // when it ceases to be valid
}

// The services that probes ask for.
const (
	ProbeDHCP   = "dhcp"   // an answer to DHCPDISCOVER
	ProbeTFTP   = "tftp"   // the first block of the boot program
	ProbeScript = "script" // a boot script by HTTP
	ProbeKernel = "kernel" // the header of the site's kernel by HTTP
)

// ProbeFacts is the outcome of one probe: one head asks another one, or itself, for a boot service.
type ProbeFacts struct {
	Network string `json:"network"`           // in which the head was asked
	Head    string `json:"head"`              // that was asked
	Service string `json:"service"`           // "dhcp", "tftp", "script" or "kernel"
	Problem string `json:"problem,omitempty"` // empty: it answered
}

// NetworkFacts is a network and the heads that may serve it.
type NetworkFacts struct {
	Name string `json:"name"` // of its Network record
	DHCP string `json:"dhcp"` // "server", "proxy" or "off"
	// Heads are those that have an address in it from which they serve DHCP. A network that relays serve has none.
	Heads []string `json:"heads,omitempty"`
}

// PendingFacts is a provision that waits for a machine.
type PendingFacts struct {
	Name   string   `json:"name"`             // full name of the provision
	For    Duration `json:"for"`              // how long it has waited
	Reason string   `json:"reason,omitempty"` // what it waits for
}

// NotifierFacts is a notifier that does not deliver.
type NotifierFacts struct {
	Name   string        `json:"name"`             // of its Notifier record
	State  NotifierState `json:"state"`            // why it does not deliver: failing or disabled
	Reason string        `json:"reason,omitempty"` // the last error, and what to do next
}

// ScheduleFacts is a schedule of backups.
type ScheduleFacts struct {
	Name   string              `json:"name"`             // of its BackupSchedule record
	State  BackupScheduleState `json:"state"`            // whether backups are made
	Reason string              `json:"reason,omitempty"` // why it is failing
	// Suspended: it makes none.
	Suspended bool     `json:"suspended,omitempty"`
	Overdue   Duration `json:"overdue,omitempty"` // for how long the next one, which is proven, is late; 0: it is not
}

// BucketFacts is the state of the copies of images in the bucket of the site.
type BucketFacts struct {
	State     BlobsState `json:"state"`               // of the copies
	Reason    string     `json:"reason,omitempty"`    // why they are not complete
	Suspended bool       `json:"suspended,omitempty"` // none are made, as the site says
	Images    int        `json:"images"`              // contents of images
	Copied    int        `json:"copied"`              // those of which the bucket has a copy
	// Checked is the time since all copies were compared; nil: they never were.
	Checked *Duration `json:"checked,omitempty"`
}

// BackupStatus is what the commands of backups reported.
type BackupStatus struct {
	// Created is the last backup that was complete in its directory, Verified the last one that was proven to be
	// restorable.
	Created  *BackupEvent `json:"created,omitempty"`
	Verified *BackupEvent `json:"verified,omitempty"` // the last backup that was proven to be restorable
}

// BackupEvent is a backup that was created or verified.
type BackupEvent struct {
	Backup   string    `json:"backup"`   // the name of its file
	Revision int64     `json:"revision"` // of the store in it
	Made     time.Time `json:"made"`     // when the backup was made, by the clock of the head that made it
	Time     time.Time `json:"time"`     // when this was reported, by the clock of the head that recorded it
	Contents bool      `json:"contents"` // with the contents of blobs
	// Problems is how many problems verify found; only a backup without any counts as verified.
	Problems int `json:"problems,omitempty"`
}

// BackupReport is the body of the report of a backup that was created or verified.
type BackupReport struct {
	// Cluster is the ID of the backup's cluster: that of another one is refused.
	Cluster string `json:"cluster"`
	// Verified: it was proven to be restorable; else it was created.
	Verified bool        `json:"verified,omitempty"`
	Event    BackupEvent `json:"event"`
}
