package fleet

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// A machine becomes a head by a provision with spec.head: what it installs joins the cluster by a token that a head
// signs when the agent is granted the run, and that is in no record (see internal/membership/join_machine.go). While
// the head is a member, its record refers to the machine, and nothing here takes the machine from its provision.

// HeadOf returns the head that runs on a machine; empty: none. The commit compares that none joins meanwhile.
func (f *Fleet) HeadOf(tx *store.Tx, m *trivet.Machine) string {
	for _, r := range tx.Referrers(m) {
		if r.From == "Head" {
			return r.Record.Header().Name
		}
	}
	return ""
}

// checkNoHead refuses what would stop the head that runs on the machine, or wipe it.
func (f *Fleet) checkNoHead(t *transition, op string) error {
	head := f.HeadOf(t.tx, t.machine)
	if head == "" {
		return nil
	}
	return errIsHead(op, t.machine.Name, head)
}

func errIsHead(op, machine, head string) error {
	return &trivet.Error{Op: op, Kind: "Machine", Name: machine, Hint: "first: trivet head demote " + head,
		Err: fmt.Errorf("%w: it is %s of this cluster", trivet.ErrConflict, head)}
}

// CheckPromotion refuses a provision that would make its machine a head, where that is not possible now.
func (f *Fleet) CheckPromotion(tx *store.Tx, p *trivet.Provision) error {
	m, err := f.Machines.In(tx).Get(p.Spec.Machine)
	if err != nil {
		return &trivet.FieldError{Field: "spec.machine", Problem: err.Error()}
	}
	if head := f.HeadOf(tx, m); head != "" {
		return errIsHead("promote", m.Name, head)
	}
	u, err := f.Upgrades.In(tx).Get(trivet.UpgradeName)
	if errors.Is(err, trivet.ErrNotFound) || err == nil && !u.InProgress() {
		return nil
	}
	if err != nil {
		return err
	}
	return &trivet.Error{Op: "promote", Kind: "Machine", Name: m.Name, Hint: "wait for it: trivet upgrade status",
		Err: fmt.Errorf("%w: the heads are being upgraded, and the new one would have the version of before",
			trivet.ErrConflict)}
}

// checkHead refuses a run that would make its machine a head that could not join, or something else than what was
// shown; and one whose template makes heads while its provision does not want one.
func checkHead(p *trivet.Provision, w *trivet.Workflow, network *trivet.RunNetwork) error {
	makes := slices.ContainsFunc(w.Spec.Actions, func(a trivet.Action) bool { return a.Use == "head" })
	h := p.Spec.Head
	switch {
	case h == nil && !makes:
		return nil
	case h == nil:
		return &trivet.FieldError{Field: "spec.template",
			Problem: p.Spec.Template + " makes its machine a head, which trivet head promote does; to see what it would " +
				"install: trivet head promote " + w.Spec.Machine + " --template " + p.Spec.Template + " --plan"}
	case !makes:
		return &trivet.FieldError{Field: "spec.template",
			Problem: p.Spec.Template + " has no action of use head, so the machine would not join; see docs/examples/head.yaml"}
	case network == nil || network.Address == "":
		return &trivet.FieldError{Field: "spec.machine",
			Problem: "has no address that stays: a head needs one, of a network that Trivet serves or by spec.nics.address"}
	case h.Plan != "" && h.Plan != HeadPlan(p, w):
		return &trivet.FieldError{Field: "spec.head.plan", Problem: "what would be installed has changed since it was " +
			"shown: delete the provision, and look at the plan again: trivet head promote " + p.Spec.Machine}
	}
	return nil
}

// HeadPlan identifies what a run installs on a machine that becomes a head.
func HeadPlan(p *trivet.Provision, w *trivet.Workflow) string {
	h, s := sha256.New(), &w.Spec
	if err := json.NewEncoder(h).Encode([]any{p.Spec.Head.RoleOf(), s.MachineUID, s.Template, s.Actions, s.Images, s.Disk,
		s.Seed}); err != nil {
		return "" // never: it is stored as JSON
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// errPromoted refuses to install a head again by a command that is not for heads.
func errPromoted(op string, p *trivet.Provision) error {
	return &trivet.Error{Op: op, Kind: "Provision", Name: p.ShortName(),
		Err:  fmt.Errorf("%w: it makes its machine a head", trivet.ErrConflict),
		Hint: "trivet head demote HEAD, and then: trivet head promote " + p.Spec.Machine}
}

// HeadRole returns the role of the head that a machine becomes by its run; empty: it becomes none.
func (f *Fleet) HeadRole(m *trivet.Machine) string {
	p, err := f.Provisions.GetShared(trivet.Resolve("", m.Status.Provision))
	if err != nil || p.Status.MachineUID != m.UID {
		return ""
	}
	return p.Spec.Head.RoleOf()
}
