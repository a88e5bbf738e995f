package membership

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// Set changes what people set of a head, and returns its record. check refuses a BMC that cannot be used.
func (r *Records) Set(ctx context.Context, name string, s trivet.HeadSettings,
	check func(*store.Tx, *trivet.BMC) error) (h *trivet.Head, err error) {
	_, err = r.Store.Update(ctx, func(tx *store.Tx) error {
		if h, err = r.Heads.In(tx).Get(name); err != nil {
			return err
		}
		switch {
		case s.Revision == 0:
			return &trivet.FieldError{Field: "revision", Problem: "is missing; it is that of the record that was read"}
		case s.Revision != h.Revision:
			return &trivet.Error{Op: "set", Kind: "Head", Name: name, Hint: "run the same command again",
				Err: fmt.Errorf("%w: it has changed meanwhile", trivet.ErrConflict)}
		case h.Spec.Remove || h.Status.State == trivet.HeadRemoved:
			return &trivet.Error{Op: "set", Kind: "Head", Name: name, Hint: "list the heads with: trivet head list",
				Err: fmt.Errorf("%w: it is removed", trivet.ErrConflict)}
		}
		newBMC := s.BMC != nil && (h.Spec.BMC == nil || *h.Spec.BMC != *s.BMC)
		newTakeover := s.Takeover != nil && !s.Takeover.Equal(h.Spec.Takeover)
		h.Spec.BMC, h.Spec.Takeover = s.BMC, s.Takeover
		if err := trivet.ValidateWritten(h); err != nil {
			return err
		}
		if newTakeover {
			if err := r.checkTakeover(tx, h); err != nil {
				return err
			}
		}
		if newBMC {
			if err := r.checkOwnBMC(tx, h); err != nil {
				return err
			}
			if err := check(tx, s.BMC); err != nil {
				return err
			}
		}
		return r.Heads.In(tx).Put(h)
	})
	return h, err
}

// checkTakeover refuses a takeover beside that of another head, as each would power off the other one, and addresses of
// heads, which do not show that this one is connected.
func (r *Records) checkTakeover(tx *store.Tx, h *trivet.Head) error {
	for _, other := range r.Heads.In(tx).ListBy(state.ByMember, state.IsMember) {
		if other.Name != h.Name && other.Spec.Takeover != nil {
			return &trivet.FieldError{Field: "spec.takeover", Problem: fmt.Sprintf(
				"%s takes over already, and one of two does: trivet head set %s --no-takeover", other.Name, other.Name)}
		}
		for i, reach := range h.Spec.Takeover.Reach {
			if hostOf(other.Status.Peer) == reach.String() || slices.Contains(other.Status.DHCP, reach) {
				return &trivet.FieldError{Field: fmt.Sprintf("spec.takeover.reach[%d]", i),
					Problem: fmt.Sprintf("%s is an address of %s; name a host that does not depend on the heads", reach, other.Name)}
			}
		}
	}
	return nil
}

// checkOwnBMC refuses a BMC that is that of another head: this one would power itself off to take over.
func (r *Records) checkOwnBMC(tx *store.Tx, h *trivet.Head) error {
	for _, other := range r.Heads.In(tx).ListBy(state.ByMember, state.IsMember) {
		if b := other.Spec.BMC; other.Name != h.Name && b != nil && sameHost(b.Host(), h.Spec.BMC.Host()) {
			return &trivet.FieldError{Field: "spec.bmc.address", Problem: fmt.Sprintf("%s is that of %s", b.Address, other.Name)}
		}
	}
	return nil
}

// sameHost reports whether two names or addresses are those of one host, as far as that shows.
func sameHost(a, b string) bool {
	x, errX := netip.ParseAddr(a)
	y, errY := netip.ParseAddr(b)
	if errX == nil && errY == nil {
		return x.Unmap() == y.Unmap()
	}
	return strings.EqualFold(strings.TrimSuffix(a, "."), strings.TrimSuffix(b, "."))
}
