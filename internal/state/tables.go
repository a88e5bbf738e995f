// Package state provides typed views of the records in the store, one table for each kind, with the indexes that find
// records without a scan.
package state

import (
	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/ipam"
	"github.com/trivet-project/trivet/internal/provision"
	"github.com/trivet-project/trivet/internal/store"
)

// The indexes of the tables.
const (
	ByMAC     = "mac"     // machines and addresses by MAC
	ByOwned   = "owned"   // addresses that machines own, by MAC; compared
	ByAddress = "address" // machines by the fixed addresses of their ports and interfaces; compared
	ByBMC     = "bmc"     // machines by their BMCs: see [trivet.BMC.Keys]; compared
	ByLabel   = "label"   // machines by label, those that can be claimed apart from others: see Tables.FreeMachines
	ByWaiting = "waiting" // provisions that wait, by what they wait for, project and age: see Tables.WaitingFor
	ByAge     = "age"     // provisions that wait, by age
	ByRace    = "race"    // provisions that race, under Racing, and those that want a second machine, under WantsSecond; compared
	ByParent  = "members" // provisions by the one that they are a member of, and state: see Tables.Members
	// machines that wait to be accepted, under trivet.MachineDiscovered; compared
	ByDiscovered = "discovered"
	ByFormerName = "former"    // machines by the names that they had before; compared
	ByMachine    = "machine"   // workflows by machine
	ByProvision  = "provision" // workflows by the full name of their provision
	ByNetwork    = "network"   // addresses by network
	ByBlob       = "blob"      // images, platforms, workflows and upgrades by the digests of their blobs
	ByCIDR       = "cidr"      // networks by subnet; compared
	ByEnclosing  = "enclosing" // networks by each subnet that contains theirs; compared
	ByMember     = "member"    // heads that are not removed, under IsMember; compared
	ByJoin       = "join"      // heads by the request by which they joined; compared
	ByHost       = "host"      // heads, also removed ones, by the UID of the machine that they run on; compared
	ByHead       = "head"      // tokens by the head whose credential they are; compared
	ByNotifier   = "notifier"  // all notifiers, under IsNotifier; compared
	BySchedule   = "schedule"  // all schedules of backups, under IsSchedule; compared
)

// AuditStream is the stream of cold data with the audit log: a [trivet.Audit] each.
const AuditStream = "audit"

// IsMember, IsNotifier and IsSchedule are the keys of the indexes ByMember, ByNotifier and BySchedule.
const IsMember, IsNotifier, IsSchedule = "yes", "yes", "yes"

// Tables are the typed views of the store's records.
type Tables struct {
	Store      *store.Store
	Machines   *store.Table[trivet.Machine]
	Workflows  *store.Table[trivet.Workflow]
	Provisions *store.Table[trivet.Provision]
	Templates  *store.Table[trivet.Template]
	Images     *store.Table[trivet.Image]
	Platforms  *store.Table[trivet.Platform]
	Networks   *store.Table[trivet.Network]
	Addresses  *store.Table[trivet.Address]
	MACs       *store.Table[trivet.MAC]
	Sites      *store.Table[trivet.Site]
	Heads      *store.Table[trivet.Head]
	Upgrades   *store.Table[trivet.Upgrade]
	Keys       *store.Table[trivet.Key]
	Secrets    *store.Table[trivet.Secret]
	Tokens     *store.Table[trivet.Token]
	Accounts   *store.Table[trivet.Account]
	Notifiers  *store.Table[trivet.Notifier]
	Schedules  *store.Table[trivet.BackupSchedule]
	Events     *store.ColdTable[trivet.Event]
	counts     counts
}

// New returns the tables of a store that has not started yet. Every kind is registered, also those without a field
// here.
func New(s *store.Store) *Tables {
	t := newTables(s)
	t.counts = newCounts(t)
	for _, kind := range trivet.Kinds {
		s.Register(kind)
	}
	return t
}

func newTables(s *store.Store) *Tables {
	return &Tables{
		Store: s,
		Machines: store.NewTable(s,
			store.Index[trivet.Machine]{Name: ByMAC, Keys: macs, Field: "spec.nics.mac"},
			store.Index[trivet.Machine]{Name: ByAddress, Keys: fixedAddresses, Compared: true},
			store.Index[trivet.Machine]{Name: ByBMC, Keys: bmcKeys, Compared: true},
			store.Index[trivet.Machine]{Name: ByLabel, Keys: labelKeys},
			store.Index[trivet.Machine]{Name: ByDiscovered, Keys: discovered, Compared: true},
			store.Index[trivet.Machine]{Name: ByFormerName, Keys: formerNames, Compared: true},
		),
		Workflows: store.NewTable(s,
			by(ByMachine, "spec.machine", func(w *trivet.Workflow) string { return w.Spec.Machine }),
			store.Index[trivet.Workflow]{Name: ByProvision, Field: "spec.provision", InProject: true,
				Keys: func(w *trivet.Workflow) []string {
					if w.Spec.Provision == "" { // it releases its machine
						return nil
					}
					return []string{trivet.Resolve(w.Project, w.Spec.Provision)}
				}},
			store.Index[trivet.Workflow]{Name: ByBlob, Keys: digestsOf[*trivet.Workflow]},
		).KeepFormer(ByMachine, trivet.FormerRuns, runsOf).Resting(hasEnded),
		Provisions: store.NewTable(s,
			store.Index[trivet.Provision]{Name: ByWaiting, Keys: waitingKeys},
			store.Index[trivet.Provision]{Name: ByAge, Keys: ageKeys},
			store.Index[trivet.Provision]{Name: ByParent, Keys: parentKeys},
			store.Index[trivet.Provision]{Name: ByRace, Keys: raceKeys, Compared: true},
		),
		Templates: store.NewTable[trivet.Template](s),
		Images:    store.NewTable(s, store.Index[trivet.Image]{Name: ByBlob, Keys: digestsOf[*trivet.Image]}),
		Platforms: store.NewTable(s, store.Index[trivet.Platform]{Name: ByBlob, Keys: digestsOf[*trivet.Platform]}),
		Networks: store.NewTable(s,
			store.Index[trivet.Network]{Name: ByCIDR, Keys: cidr, Compared: true},
			store.Index[trivet.Network]{Name: ByEnclosing, Keys: enclosing, Compared: true},
		),
		Addresses: store.NewTable(s,
			by(ByMAC, "spec.mac", func(a *trivet.Address) string { return a.Spec.MAC }),
			by(ByNetwork, "spec.network", func(a *trivet.Address) string { return a.Spec.Network }),
			store.Index[trivet.Address]{Name: ByOwned, Keys: owned, Compared: true},
		),
		MACs:  store.NewTable[trivet.MAC](s),
		Sites: store.NewTable[trivet.Site](s),
		Heads: store.NewTable(s,
			store.Index[trivet.Head]{Name: ByMember, Keys: isMember, Compared: true},
			store.Index[trivet.Head]{Name: ByJoin, Keys: joinedBy, Compared: true},
			store.Index[trivet.Head]{Name: ByHost, Keys: hostOf, Compared: true},
		),
		Upgrades: store.NewTable(s, store.Index[trivet.Upgrade]{Name: ByBlob, Keys: digestsOf[*trivet.Upgrade]}),
		Keys:     store.NewTable[trivet.Key](s),
		Secrets:  store.NewTable[trivet.Secret](s),
		Tokens:   store.NewTable(s, store.Index[trivet.Token]{Name: ByHead, Keys: ofHead, Compared: true}),
		Accounts: store.NewTable[trivet.Account](s),
		Notifiers: store.NewTable(s, store.Index[trivet.Notifier]{Name: ByNotifier, Compared: true,
			Keys: func(*trivet.Notifier) []string { return []string{IsNotifier} }}),
		Schedules: store.NewTable(s, store.Index[trivet.BackupSchedule]{Name: BySchedule, Compared: true,
			Keys: func(*trivet.BackupSchedule) []string { return []string{IsSchedule} }}),
		Events: store.NewColdTable[trivet.Event](s, func(value func(field string) string) string {
			return trivet.EventPrefix(value("spec.subject"), value("spec.subjectUID"))
		}),
	}
}

// Within returns the tables for local reads within a scope: a read of another kind panics. Transactions are limited
// by their context.
func (t *Tables) Within(s *store.Scope) *Tables {
	return &Tables{
		Store:      t.Store,
		Machines:   t.Machines.Within(s),
		Workflows:  t.Workflows.Within(s),
		Provisions: t.Provisions.Within(s),
		Templates:  t.Templates.Within(s),
		Images:     t.Images.Within(s),
		Platforms:  t.Platforms.Within(s),
		Networks:   t.Networks.Within(s),
		Addresses:  t.Addresses.Within(s),
		MACs:       t.MACs.Within(s),
		Sites:      t.Sites.Within(s),
		Heads:      t.Heads.Within(s),
		Upgrades:   t.Upgrades.Within(s),
		Keys:       t.Keys.Within(s),
		Secrets:    t.Secrets.Within(s),
		Tokens:     t.Tokens.Within(s),
		Accounts:   t.Accounts.Within(s),
		Notifiers:  t.Notifiers.Within(s),
		Schedules:  t.Schedules.Within(s),
		Events:     t.Events.Within(s),
		counts:     t.counts,
	}
}

// by returns an index of records by the value of a field.
func by[T any](name, field string, key func(*T) string) store.Index[T] {
	return store.Index[T]{Name: name, Field: field, Keys: func(r *T) []string { return []string{key(r)} }}
}

// runsOf returns what the full names of a provision's runs begin with; empty where the provision is not known.
func runsOf(project string, value func(field string) string) string {
	provision := value("spec.provision")
	if project == "" || provision == "" {
		return ""
	}
	return trivet.Resolve(project, provision) + "-"
}

func macs(m *trivet.Machine) (all []string) {
	for _, n := range m.Spec.NICs {
		all = append(all, n.MAC)
	}
	return all
}

// The keys of ByRace.
const (
	Racing      = "racing"
	WantsSecond = "wants second"
)

func raceKeys(p *trivet.Provision) []string {
	switch {
	case p.Status.Race != nil:
		return []string{Racing}
	case provision.WantsSecond(p):
		return []string{WantsSecond}
	}
	return nil
}

// owned returns the MAC of an address that a machine owns. The lease of an unknown port has no key: its write stays
// small.
func owned(a *trivet.Address) []string {
	if a.Spec.Machine == "" {
		return nil
	}
	return []string{a.Spec.MAC}
}

func fixedAddresses(m *trivet.Machine) (all []string) {
	for _, a := range m.FixedAddresses() {
		all = append(all, a.String())
	}
	return all
}

func bmcKeys(m *trivet.Machine) []string {
	if m.Spec.BMC == nil {
		return nil
	}
	own, _ := m.Spec.BMC.Keys()
	return own
}

func discovered(m *trivet.Machine) []string {
	if m.Status.State != trivet.MachineDiscovered {
		return nil
	}
	return []string{string(trivet.MachineDiscovered)}
}

func formerNames(m *trivet.Machine) []string { return m.Status.FormerNames }

func cidr(n *trivet.Network) []string { return []string{n.Spec.CIDR.String()} }

func enclosing(n *trivet.Network) (all []string) {
	for _, p := range ipam.Enclosing(n.Spec.CIDR) {
		all = append(all, p.String())
	}
	return all
}

func ofHead(t *trivet.Token) []string {
	if t.Labels[trivet.HeadLabel] == "" {
		return nil
	}
	return []string{t.Labels[trivet.HeadLabel]}
}

func isMember(h *trivet.Head) []string {
	if h.Status.State == trivet.HeadRemoved {
		return nil
	}
	return []string{IsMember}
}

func joinedBy(h *trivet.Head) []string {
	if h.Status.Join == "" {
		return nil
	}
	return []string{h.Status.Join}
}

func hostOf(h *trivet.Head) []string {
	if h.Status.MachineUID == "" {
		return nil
	}
	return []string{h.Status.MachineUID}
}

func hasEnded(w *trivet.Workflow) bool { return w.Status.State.Ended() }
