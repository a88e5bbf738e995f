package trivet

import (
	"slices"
	"strings"
)

// Reference declares that the records of one kind refer to those of another. Deletion is by these rules only.
type Reference struct {
	From     Kind
	Field    string // path in the JSON of From
	To       Kind
	OnDelete DeletionRule // of the record that it refers to
	// Required references must name a record that exists when a client writes them.
	Required bool
	// Targets returns the records that a record refers to, by their full names.
	Targets func(Record) []Target
}

// DeletionRule is what happens to a reference when the record that it refers to is deleted.
type DeletionRule string

// The rules.
const (
	// DeletionRefused: the record is not deleted while another one refers to it.
	DeletionRefused DeletionRule = "refused"
	// DeletionForced: as DeletionRefused, unless the client forces it: then the reference has no target any more.
	DeletionForced DeletionRule = "forced"
	// DeletionCascades: the record that refers to it is deleted with it, or soon after it. It has the UID.
	DeletionCascades DeletionRule = "cascades"
	// DeletionIgnored: the reference stays. If it has the UID, it does not refer to a later record of that name.
	DeletionIgnored DeletionRule = "ignored"
)

// Target is what a reference refers to.
type Target struct {
	Name string // the full name
	// UID is where the record that refers holds the UID of its target; nil: it refers to any record of that name. An
	// empty one is set when the record is written.
	UID *string
}

// Is reports whether a record is the target.
func (t Target) Is(record *Meta) bool {
	return t.Name == record.FullName() && (t.UID == nil || *t.UID == record.UID)
}

// References are all references between records.
var References = []Reference{
	refer("spec.account", "Account", DeletionCascades, func(t *Token) []Target {
		return target(t.Spec.Account, &t.Spec.AccountUID)
	}),
	refer("spec.replace", "Head", DeletionIgnored, func(t *Token) []Target { return target(t.Spec.Replace, nil) }),
	refer("status.replaces", "Head", DeletionIgnored, func(h *Head) []Target {
		return target(h.Status.Replaces, nil)
	}),
	required(refer("spec.platform", "Platform", DeletionForced, func(s *Site) []Target {
		return target(s.Spec.Platform, nil)
	})),
	refer("spec.platform", "Platform", DeletionForced, func(m *Machine) []Target {
		return target(m.Spec.Platform, nil)
	}),
	refer("spec.bmc.secret", "Secret", DeletionForced, func(m *Machine) []Target { return bmcSecret(m.Spec.BMC) }),
	refer("spec.bmc.secret", "Secret", DeletionForced, func(h *Head) []Target { return bmcSecret(h.Spec.BMC) }),
	required(refer("spec.webhook.secret", "Secret", DeletionRefused, webhookSecret)),
	required(refer("spec.mail.secret", "Secret", DeletionRefused, mailSecret)),
	refer("status.machine", "Machine", DeletionRefused, func(h *Head) []Target {
		if h.Status.State == HeadRemoved { // its history
			return nil
		}
		return target(h.Status.Machine, &h.Status.MachineUID)
	}),
	refer("status.head", "Head", DeletionIgnored, func(n *Notifier) []Target { return target(n.Status.Head, nil) }),
	required(refer("spec.s3.secret", "Secret", DeletionRefused, bucketSecret)),
	required(refer("spec.blobs.s3.secret", "Secret", DeletionRefused, blobsSecret)),
	refer("status.blobs.head", "Head", DeletionIgnored, func(s *Site) []Target {
		if s.Status.Blobs == nil {
			return nil
		}
		return target(s.Status.Blobs.Head, nil)
	}),
	refer("status.head", "Head", DeletionIgnored, func(b *BackupSchedule) []Target { return target(b.Status.Head, nil) }),
	refer("status.provision", "Provision", DeletionIgnored, func(m *Machine) []Target {
		return target(m.Status.Provision, nil)
	}),
	refer("status.workflow", "Workflow", DeletionIgnored, func(m *Machine) []Target {
		return target(m.Status.Workflow, nil)
	}),
	refer("spec.machine", "Machine", DeletionCascades, func(m *MAC) []Target {
		return target(m.Spec.Machine, &m.Spec.MachineUID)
	}),
	refer("spec.machine", "Machine", DeletionCascades, func(a *Address) []Target {
		return target(a.Spec.Machine, &a.Spec.MachineUID)
	}),
	refer("spec.network", "Network", DeletionForced, machinesNetwork),
	refer("spec.provision", "Provision", DeletionIgnored, func(a *Address) []Target { // see fleet.Release
		return target(a.Spec.Provision, &a.Spec.ProvisionUID)
	}),
	refer("spec.actions.with.image", "Image", DeletionForced, templateImages),
	required(refer("spec.template", "Template", DeletionForced, unfinishedTemplate)),
	refer("spec.machine", "Machine", DeletionIgnored, func(p *Provision) []Target {
		return target(p.Spec.Machine, nil)
	}),
	refer("status.machine", "Machine", DeletionRefused, heldMachine),
	refer("status.race.machine", "Machine", DeletionRefused, func(p *Provision) []Target {
		if p.Status.Race == nil {
			return nil
		}
		return target(p.Status.Race.Machine, &p.Status.Race.MachineUID)
	}),
	refer("status.race.workflow", "Workflow", DeletionIgnored, func(p *Provision) []Target {
		if p.Status.Race == nil {
			return nil
		}
		return target(p.Status.Race.Workflow, nil)
	}),
	refer("status.workflow", "Workflow", DeletionIgnored, func(p *Provision) []Target {
		return target(p.Status.Workflow, nil)
	}),
	refer("status.memberOf", "Provision", DeletionCascades, func(p *Provision) []Target {
		return target(p.Status.MemberOf, &p.Status.MemberOfUID)
	}),
	refer("status.spent.machine", "Machine", DeletionIgnored, spentMachines),
	refer("status.replaced.machine", "Machine", DeletionIgnored, func(p *Provision) []Target {
		if p.Status.Replaced == nil {
			return nil
		}
		return target(p.Status.Replaced.Machine, &p.Status.Replaced.MachineUID)
	}),
	refer("status.spent.workflow", "Workflow", DeletionIgnored, spentWorkflows),
	refer("spec.machine", "Machine", DeletionRefused, func(w *Workflow) []Target {
		if w.Status.State.Ended() { // its history
			return nil
		}
		return target(w.Spec.Machine, &w.Spec.MachineUID)
	}),
	refer("spec.provision", "Provision", DeletionIgnored, func(w *Workflow) []Target {
		return target(w.Spec.Provision, &w.Spec.ProvisionUID)
	}),
	refer("spec.template", "Template", DeletionIgnored, func(w *Workflow) []Target {
		return target(w.Spec.Template, nil)
	}),
	refer("spec.images", "Image", DeletionForced, unfinishedImages),
	refer("spec.subject", "Machine", DeletionIgnored, func(e *Event) []Target {
		return target(strings.TrimPrefix(e.Spec.Subject, "machine/"), &e.Spec.SubjectUID)
	}),
	refer("spec.workflow", "Workflow", DeletionIgnored, func(e *Event) []Target {
		return target(e.Spec.Workflow, nil)
	}),
}

// refer declares a reference of the kind whose Go type is T. targets returns the names as the record has them.
func refer[T any, P interface {
	*T
	Record
}](field string, to Kind, rule DeletionRule, targets func(P) []Target) Reference {
	resolve := targets
	if ScopeOf(to) == ScopeProject {
		resolve = func(r P) []Target {
			all := targets(r)
			for i := range all {
				all[i].Name = Resolve(r.Header().Project, all[i].Name)
			}
			return all
		}
	}
	return Reference{From: KindOf(P(new(T))), Field: field, To: to, OnDelete: rule,
		Targets: func(r Record) []Target { return resolve(r.(P)) }}
}

func required(r Reference) Reference {
	r.Required = true
	return r
}

func target(name string, uid *string) []Target {
	if name == "" {
		return nil
	}
	return []Target{{name, uid}}
}

func bmcSecret(b *BMC) []Target {
	if b == nil {
		return nil
	}
	return target(b.Secret, nil)
}

func webhookSecret(n *Notifier) []Target {
	if n.Spec.Webhook == nil {
		return nil
	}
	return target(n.Spec.Webhook.Secret, nil)
}

func mailSecret(n *Notifier) []Target {
	if n.Spec.Mail == nil {
		return nil
	}
	return target(n.Spec.Mail.Secret, nil)
}

func bucketSecret(b *BackupSchedule) []Target {
	if b.Spec.S3 == nil {
		return nil
	}
	return target(b.Spec.S3.Secret, nil)
}

func blobsSecret(s *Site) []Target {
	if s.Spec.Blobs == nil || s.Spec.Blobs.S3 == nil {
		return nil
	}
	return target(s.Spec.Blobs.S3.Secret, nil)
}

// machinesNetwork leaves out the leases of unknown machines, which expire.
func machinesNetwork(a *Address) []Target {
	if a.Spec.Machine == "" {
		return nil
	}
	return target(a.Spec.Network, nil)
}

// templateImages returns the images that a template names. One that a provision's parameter names is known when the
// machine is claimed.
func templateImages(t *Template) (images []Target) {
	for _, a := range t.Spec.Actions {
		if name, ok := a.With["image"].(string); ok && ValidateReference(name) == nil {
			images = append(images, Target{Name: name})
		}
	}
	return images
}

// unfinishedTemplate returns the template while the provision may still need it.
func unfinishedTemplate(p *Provision) []Target {
	if p.Status.State.Ended() {
		return nil
	}
	return target(p.Spec.Template, nil)
}

// heldMachine returns the machine that the provision has: one that failed has none.
func heldMachine(p *Provision) []Target {
	if p.Status.State == ProvisionFailed {
		return nil
	}
	return target(p.Status.Machine, &p.Status.MachineUID)
}

func spentMachines(p *Provision) (machines []Target) {
	for i := range p.Status.Spent {
		machines = append(machines, Target{p.Status.Spent[i].Machine, &p.Status.Spent[i].MachineUID})
	}
	return machines
}

func spentWorkflows(p *Provision) (workflows []Target) {
	for i := range p.Status.Spent {
		workflows = append(workflows, Target{Name: p.Status.Spent[i].Workflow})
	}
	return workflows
}

func unfinishedImages(w *Workflow) (images []Target) {
	if w.Status.State.Ended() {
		return nil
	}
	for _, i := range w.Spec.Images {
		images = append(images, Target{Name: i.Name})
	}
	return images
}

// ReferencesFrom returns the references of a kind.
func ReferencesFrom(kind Kind) []Reference {
	return slices.DeleteFunc(slices.Clone(References), func(r Reference) bool { return r.From != kind })
}

// ReferencesTo returns the references to a kind.
func ReferencesTo(kind Kind) []Reference {
	return slices.DeleteFunc(slices.Clone(References), func(r Reference) bool { return r.To != kind })
}
