package api

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/actionspec"
	"github.com/trivet-project/trivet/internal/ipam"
	"github.com/trivet-project/trivet/internal/recovery"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// The admissions of the kinds. Each is called within the transaction.

func (h *Handler) admitTemplate(c *change, _, next *trivet.Template) error {
	if next == nil {
		return nil
	}
	if err := errors.Join(h.CheckTemplate(next), h.Fleet.CheckTemplateImages(c.tx, next)); err != nil {
		return err
	}
	for i, a := range next.Spec.Actions {
		if since := actionspec.Since(a); since.Compare(c.tx.ClusterVersion()) > 0 {
			return &trivet.FieldError{Field: fmt.Sprintf("spec.actions[%d]", i), Problem: fmt.Sprintf(
				"needs release %s on all heads: upgrade the others first (trivet head list)", since)}
		}
	}
	return nil
}

// admitProvision keeps the spec constant once the provision has started, and releases the machine when the provision
// is deleted.
func (h *Handler) admitProvision(c *change, old, next *trivet.Provision) error {
	if next == nil {
		return errors.Join(h.Fleet.Leave(c.tx, old), h.Fleet.Release(c.tx, old))
	}
	if err := admitSeed(old, next); err != nil {
		return err
	}
	if old == nil || old.Spec.Template != next.Spec.Template || !maps.Equal(old.Spec.Parameters, next.Spec.Parameters) {
		if err := h.Fleet.CheckProvision(c.tx, next); err != nil {
			return err
		}
	}
	if err := h.admitHead(c, old, next); err != nil {
		return err
	}
	if old != nil && (old.Spec.Count != nil || next.Spec.Count != nil) {
		return admitCount(old, next)
	}
	if old != nil && (!old.Status.State.Waits() || old.Status.Attempts > 0) &&
		!reflect.DeepEqual(old.Spec, next.Spec) {
		return &trivet.Error{Op: "update", Kind: "Provision", Name: next.ShortName(),
			Err:  fmt.Errorf("%w: it has started (%s), so its spec is constant", trivet.ErrConflict, old.Status.State),
			Hint: h.hintConstant(c.tx, old, next)}
	}
	return h.needMachine(c, old, next)
}

// needMachine requires that the machine exists that a provision names, where that is new: it may be deleted later.
func (h *Handler) needMachine(c *change, old, next *trivet.Provision) error {
	name := next.Spec.Machine
	if name == "" || old != nil && old.Spec.Machine == name {
		return nil
	}
	err := c.needRecord("spec.machine", "Machine", name)
	if now := h.Fleet.RenamedName(name); now != "" && errors.Is(err, trivet.ErrInvalid) {
		return &trivet.FieldError{Field: "spec.machine", Problem: fmt.Sprintf(
			"names machine %s; it was renamed to %s: write that name", name, now)}
	}
	return err
}

// hintConstant says what to do about a spec that is constant: it may name the machine by a former name, which was moved
// when the machine was renamed.
func (h *Handler) hintConstant(tx *store.Tx, old, next *trivet.Provision) string {
	m, err := h.Fleet.Machines.In(tx).Get(old.Spec.Machine)
	if err == nil && slices.Contains(m.Status.FormerNames, next.Spec.Machine) {
		return fmt.Sprintf("machine %s was renamed to %s: write that name", next.Spec.Machine, m.Name)
	}
	return "delete it and create it again"
}

// admitNetwork refuses overlapping subnets: a machine's address would be in two.
func (h *Handler) admitNetwork(c *change, old, next *trivet.Network) error {
	if next == nil || old != nil && old.Spec.CIDR == next.Spec.CIDR {
		return nil
	}
	if other := h.overlapping(c.tx, next); other != nil {
		return &trivet.FieldError{Field: "spec.cidr", Problem: fmt.Sprintf("%s overlaps %s of network %s",
			next.Spec.CIDR, other.Spec.CIDR, other.Name)}
	}
	return nil
}

// overlapping returns another network whose subnet overlaps: it is within this one, or one of those that enclose it.
// The transaction compares these lists, not all networks.
func (h *Handler) overlapping(tx *store.Tx, n *trivet.Network) *trivet.Network {
	networks := h.Fleet.Networks.In(tx)
	found := networks.ListBy(state.ByEnclosing, n.Spec.CIDR.String())
	for _, p := range ipam.Enclosing(n.Spec.CIDR) {
		found = append(found, networks.ListBy(state.ByCIDR, p.String())...)
	}
	for _, other := range found {
		if other.Name != n.Name {
			return other
		}
	}
	return nil
}

// admitImage requires that a head holds the content.
func (h *Handler) admitImage(c *change, _, next *trivet.Image) error {
	if next == nil {
		return nil
	}
	return c.needBlob("spec.blob", next.Spec.Blob)
}

// admitPlatform requires that a head holds the content.
func (h *Handler) admitPlatform(c *change, _, next *trivet.Platform) error {
	if next == nil {
		return nil
	}
	return errors.Join(c.needBlob("spec.kernel", next.Spec.Kernel), c.needBlob("spec.initrd", next.Spec.Initrd))
}

// admitSite keeps the site's only record: without it the names of removed heads would be assigned again. It refuses a
// recovery key for which no backup could be made.
func (h *Handler) admitSite(_ *change, _, next *trivet.Site) error {
	if next != nil && next.Spec.RecoveryKey != "" {
		return recovery.CheckRecipient(next.Spec.RecoveryKey)
	}
	if next != nil {
		return nil
	}
	return &trivet.Error{Op: "delete", Kind: "Site", Name: trivet.SiteName, Hint: "change its spec instead",
		Err: fmt.Errorf("%w: a cluster has one site", trivet.ErrConflict)}
}

// admitAccount keeps callers from locking themselves out.
func (h *Handler) admitAccount(c *change, old, next *trivet.Account) error {
	if old == nil || c.account != old.Name || next != nil && next.Spec.Role == old.Spec.Role {
		return nil
	}
	return &trivet.Error{Op: "change", Kind: "Account", Name: old.Name, Hint: "use the account of another admin",
		Err: fmt.Errorf("%w: it is the account of this request", trivet.ErrConflict)}
}
