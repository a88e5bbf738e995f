package trivet

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"time"
)

// Site is the configuration of the whole site. There is one record, named "site".
type Site struct {
	Meta
	Spec   SiteSpec   `json:"spec"`
	Status SiteStatus `json:"status,omitzero"`
}

// SiteName is the name of the one Site record.
const SiteName = "site"

// SiteSpec is the configuration.
type SiteSpec struct {
	// Platform is the one that machines netboot unless their own record sets one.
	Platform string `json:"platform,omitempty"`
	// Accept makes machines that enrol themselves available at once instead of discovered.
	Accept bool `json:"accept,omitempty"`
	// Discovered is how many machines that enrolled themselves may wait for acceptance. At the limit, each new one
	// replaces the oldest one that is silent.
	Discovered int `json:"discovered,omitempty"`
	// Limits overrides the deadlines and retries of the boot steps.
	Limits map[string]Limit `json:"limits,omitempty"`
	// AgentTimeout is how long an agent may be silent before it is declared lost.
	AgentTimeout Duration `json:"agentTimeout,omitempty"`
	// Resets is how often a machine may lose its agent in one run.
	Resets int `json:"resets,omitempty"`
	// LateAfter is the least time after which a step may be reported as late, however fast earlier ones were.
	LateAfter Duration `json:"lateAfter,omitempty"`
	// RaceBudget is how many machines may race beside others at the same time, in percent of all machines; at least one
	// may. 0: none.
	RaceBudget *int `json:"raceBudget,omitempty"`
	// TokenLifetime is how long an API token is valid unless its request says otherwise.
	TokenLifetime Duration `json:"tokenLifetime,omitempty"`
	// Release is what becomes of the disks of a machine whose provision is deleted: "no-wipe" leaves them as they are,
	// "wipe" erases them, "keep-data" also keeps selectors from using the machine. (trivet release says for one machine.)
	Release ReleaseMode `json:"release,omitempty"`
	// RecoveryKey is the public part of the key that opens backups, which trivet backup key creates: age1... Its secret
	// part is on no head.
	RecoveryKey string `json:"recoveryKey,omitempty"`
	// Blobs is where the contents of images are kept besides the heads; nil: nowhere.
	Blobs *SiteBlobs `json:"blobs,omitempty"`
}

// PlatformOf returns the name of the platform that a machine netboots; empty: none. m is nil for a machine that has no
// record yet.
func (s *SiteSpec) PlatformOf(m *Machine) string {
	if m != nil && m.Spec.Platform != "" {
		return m.Spec.Platform
	}
	return s.Platform
}

// SiteStatus is the state of the site that Trivet keeps.
type SiteStatus struct {
	// HeadNames counts the names assigned to heads: head0, head1, ... None is assigned twice.
	HeadNames int `json:"headNames,omitempty"`
	// ClusterVersion is the lowest release of the heads. What a later one added is refused. It never decreases.
	ClusterVersion Release `json:"clusterVersion,omitempty"`
	// PowerFailures are machines that their BMCs did not power on.
	PowerFailures *SharedFailures `json:"powerFailures,omitempty"`
	// Backups are the last backup that was created, and the last one that was proven to be restorable.
	Backups BackupStatus `json:"backups,omitzero"`
	// Blobs is the state of the copies of images that are in the bucket of spec.blobs.
	Blobs *BlobsStatus `json:"blobs,omitempty"`
	// Recovered is the last recovery of the cluster; nil where there was none.
	Recovered *Recovered `json:"recovered,omitempty"`
}

// DiscoveredOrDefault returns Discovered, or its default.
func (s *SiteSpec) DiscoveredOrDefault() int { return cmp.Or(s.Discovered, 2000) }

// AgentTimeoutOrDefault returns AgentTimeout, or its default.
func (s *SiteSpec) AgentTimeoutOrDefault() Duration {
	return cmp.Or(s.AgentTimeout, DefaultAgentTimeout)
}

// ResetsOrDefault returns Resets, or its default.
func (s *SiteSpec) ResetsOrDefault() int { return cmp.Or(s.Resets, 3) }

// LateAfterOrDefault returns LateAfter, or its default.
func (s *SiteSpec) LateAfterOrDefault() Duration {
	return cmp.Or(s.LateAfter, Duration(30*time.Second))
}

// RaceBudgetOrDefault returns RaceBudget, or its default.
func (s *SiteSpec) RaceBudgetOrDefault() int { return *cmp.Or(s.RaceBudget, new(5)) }

// TokenLifetimeOrDefault returns TokenLifetime, or its default: 90 days.
func (s *SiteSpec) TokenLifetimeOrDefault() Duration {
	return cmp.Or(s.TokenLifetime, Duration(90*24*time.Hour))
}

// ReleaseOrDefault returns Release, or its default.
func (s *SiteSpec) ReleaseOrDefault() ReleaseMode { return cmp.Or(s.Release, ReleaseNoWipe) }

// DefaultAgentTimeout is what [SiteSpec.AgentTimeoutOrDefault] returns where a site has none.
const DefaultAgentTimeout = Duration(45 * time.Second)

// DefaultLimits are the boot steps' bounds where neither template nor site says otherwise. They fit slow server
// firmware.
var DefaultLimits = map[string]Limit{
	StepPowerOn:   {Timeout: Duration(2 * time.Minute), Retries: new(2)},
	StepDHCP:      {Timeout: Duration(8 * time.Minute), Retries: new(1)},
	StepScript:    {Timeout: Duration(2 * time.Minute), Retries: new(1)},
	StepKernel:    {Timeout: Duration(3 * time.Minute), Retries: new(1)},
	StepHello:     {Timeout: Duration(3 * time.Minute), Retries: new(1)},
	StepFirstBoot: {Timeout: Duration(10 * time.Minute), Retries: new(1)},
	StepPowerOff:  {Timeout: Duration(2 * time.Minute), Retries: new(2)},
}

// Head is a member of the control plane.
type Head struct {
	Meta
	Spec   HeadSpec   `json:"spec"`
	Status HeadStatus `json:"status,omitzero"`
}

// The roles of heads. A voter is a full head. A standby is one that does not vote: it follows the voters, which do not
// wait for it. A witness only votes: it serves nothing and holds no keys.
const (
	RoleVoter   = "voter"
	RoleStandby = "standby"
	RoleWitness = "witness"
)

// StandbyRelease is the release since which a head may be a standby. A head of an earlier one would let it vote.
const StandbyRelease Release = "0.3.1"

// HeadSpec is the desired state of a head.
type HeadSpec struct {
	Role string `json:"role,omitempty"` // "voter", "standby" or "witness"
	// Remove removes the head from the cluster for good.
	Remove bool `json:"remove,omitempty"`
	// BMC is that of its host: another head makes sure by it that this one is off, before it takes over.
	BMC *BMC `json:"bmc,omitempty"`
	// Takeover lets it go on alone, by itself, where the only other full head is lost; nil: an operator decides.
	Takeover *Takeover `json:"takeover,omitempty"`
}

// RoleOrDefault returns Role, or its default.
func (s *HeadSpec) RoleOrDefault() string { return cmp.Or(s.Role, RoleVoter) }

// Takeover is when a head goes on alone.
type Takeover struct {
	// After is for how long there must have been no quorum: 30 s to 1 hour.
	After Duration `json:"after"`
	// Reach are IPv4 addresses, such as those of routers, of which one must respond to an ICMP echo request: a head that
	// is cut off itself must not power off the other one.
	Reach []netip.Addr `json:"reach"`
}

// The bounds of a takeover.
const (
	MinTakeover = Duration(30 * time.Second)
	MaxTakeover = Duration(time.Hour)
	MaxReach    = 8 // addresses
)

// Equal reports whether two of them are the same; nil is none.
func (t *Takeover) Equal(other *Takeover) bool {
	return t == other || t != nil && other != nil && t.After == other.After && slices.Equal(t.Reach, other.Reach)
}

func (t *Takeover) validate(p *problems) {
	if t.After < MinTakeover || t.After > MaxTakeover {
		p.add("spec.takeover.after", "is %s; %s to %s", t.After, MinTakeover, MaxTakeover)
	}
	if len(t.Reach) == 0 {
		p.add("spec.takeover.reach", "names no address; name one that does not depend on the other head, as of a router")
	}
	p.max("spec.takeover.reach", len(t.Reach), MaxReach)
	for i, a := range t.Reach {
		if !a.Is4() || a.IsUnspecified() || a.IsMulticast() {
			p.add(fmt.Sprintf("spec.takeover.reach[%d]", i), "%s must be the IPv4 address of a host", a)
		}
	}
}

// HeadState is the state of a head's membership.
type HeadState string

// The states of a head.
const (
	HeadJoining HeadState = "joining" // its member was added and is catching up
	HeadMember  HeadState = "member"  // its member is a voter, or the one of a standby
	HeadRemoved HeadState = "removed" // it was removed; the name is not used again
)

// HeadStatus is the addresses of the head, which it writes at start, and its membership.
type HeadStatus struct {
	State  HeadState `json:"state,omitempty"`
	Member string    `json:"member,omitempty"` // ID of its member of the store, 16 hex digits
	Peer   string    `json:"peer,omitempty"`   // https://host:port where other heads reach it
	Join   string    `json:"join,omitempty"`   // ID of its join request, which may be repeated
	Reason string    `json:"reason,omitempty"` // why it is not yet a member, or not yet removed
	// Replaces is the head that it replaced when it joined.
	Replaces string    `json:"replaces,omitempty"`
	Version  string    `json:"version,omitempty"` // of the program
	Release  Release   `json:"release,omitempty"` // of the program: what it understands
	API      []string  `json:"api,omitempty"`     // https://host:port
	Boot     []string  `json:"boot,omitempty"`    // http://host:port
	Started  time.Time `json:"started,omitzero"`  // last start of its process
	Removed  time.Time `json:"removed,omitzero"`  // when it was removed; its record is deleted 30 days later
	// Fenced: it was removed by a recovery of the cluster, and may not know that yet.
	Fenced bool `json:"fenced,omitempty"`
	// StoreKeys are the IDs of the keys of the store that it holds. The first is the one that it writes with.
	StoreKeys []string `json:"storeKeys,omitempty"`
	// SealKeys are the IDs of the keys of secrets that it holds, likewise.
	SealKeys []string `json:"sealKeys,omitempty"`
	// BootKeys are the IDs of the keys of boot tokens that it holds, likewise.
	BootKeys []string `json:"bootKeys,omitempty"`
	// BootCAs are the pins of the boot CAs whose keys it holds. The first signs the certificate of its boot server.
	BootCAs []string `json:"bootCAs,omitempty"`
	// StoredCAs are the pins of the CAs that it has on its disk. The first signs from its next start on.
	StoredCAs []string `json:"storedCAs,omitempty"`
	// CAs are the pins of the CAs that it uses since its last start. The first has signed its certificate.
	CAs []string `json:"cas,omitempty"`
	// DHCP are the addresses from which it serves DHCP.
	DHCP []netip.Addr `json:"dhcp,omitempty"`
	// Machine is the machine that it runs on, where Trivet has installed that as a head; empty: another host.
	Machine    string `json:"machine,omitempty"`
	MachineUID string `json:"machineUID,omitempty"` // of that machine
	// Run is the UID of the run that has installed that machine, and with which it has joined.
	Run string `json:"run,omitempty"`
	// Program is its program, since there was an upgrade.
	Program *HeadProgram `json:"program,omitempty"`
}

// Keys returns the IDs of the keys of a name that the head holds: see [KeyNames].
func (s *HeadStatus) Keys(name string) []string {
	switch name {
	case StoreKey:
		return s.StoreKeys
	case SealKey:
		return s.SealKeys
	case BootKey:
		return s.BootKeys
	case BootCAKey:
		return s.BootCAs
	case CAKey:
		return s.StoredCAs
	}
	return nil
}

// SetKeys sets what Keys returns, of a ring of keys or the boot CAs.
func (s *HeadStatus) SetKeys(name string, ids []string) {
	switch name {
	case StoreKey:
		s.StoreKeys = ids
	case SealKey:
		s.SealKeys = ids
	case BootKey:
		s.BootKeys = ids
	case BootCAKey:
		s.BootCAs = ids
	}
}

// Serves reports whether clients and machines may use the head: it is a full head and not being removed.
func (h *Head) Serves() bool {
	return h.Spec.Role != RoleWitness && !h.Spec.Remove && h.Status.State != HeadRemoved
}

// Votes reports whether the head is a full head that votes and is not being removed, once it has joined.
func (h *Head) Votes() bool { return h.Serves() && h.Spec.Role != RoleStandby }

// recoveryKeyForm is the form of an X25519 recipient of age.
var recoveryKeyForm = regexp.MustCompile(`^age1[02-9ac-hj-np-z]{58}$`)

// Validate checks the site's configuration by itself.
func (s *Site) Validate() error {
	var p problems
	if s.Name != SiteName {
		p.add("name", "is %q; the only site is named %q", s.Name, SiteName)
	}
	p.ref("spec.platform", s.Spec.Platform)
	validateLimits(&p, "spec.limits", s.Spec.Limits)
	if n := s.Spec.RaceBudget; n != nil && (*n < 0 || *n > 100) {
		p.add("spec.raceBudget", "is %d; must be from 0 to 100 percent of the machines", *n)
	}
	if s.Spec.AgentTimeout != 0 && s.Spec.AgentTimeout < Duration(5*time.Second) {
		p.add("spec.agentTimeout", "is %s; at least 5s", s.Spec.AgentTimeout)
	}
	if s.Spec.Discovered < 0 {
		p.add("spec.discovered", "is %d; at least 1, or 0 for the default", s.Spec.Discovered)
	}
	if l := s.Spec.TokenLifetime; l < 0 || l > 0 && l < Duration(time.Minute) {
		p.add("spec.tokenLifetime", "is %s; at least 1m", l)
	}
	if s.Spec.RecoveryKey != "" && !recoveryKeyForm.MatchString(s.Spec.RecoveryKey) {
		p.add("spec.recoveryKey", "%.80q must be age1 and 58 letters and digits, as trivet backup key writes it",
			s.Spec.RecoveryKey)
	}
	if s.Spec.Blobs != nil {
		s.Spec.Blobs.validate(&p)
	}
	p.oneOf("spec.release", string(s.Spec.Release), "", string(ReleaseNoWipe), string(ReleaseWipe),
		string(ReleaseKeepData))
	if s.Spec.Resets < 0 || s.Spec.Resets > MaxRetries {
		p.add("spec.resets", "is %d; 0 to %d", s.Spec.Resets, MaxRetries)
	}
	return p.err()
}

// Validate checks a head by itself.
func (h *Head) Validate() error {
	var p problems
	p.name(h.Name)
	p.oneOf("spec.role", h.Spec.Role, "", RoleVoter, RoleStandby, RoleWitness)
	h.Spec.BMC.validate(&p)
	if t := h.Spec.Takeover; t != nil {
		t.validate(&p)
		if h.Spec.Role == RoleWitness {
			p.add("spec.takeover", "is not for a witness, which has no keys")
		}
	}
	return p.err()
}
