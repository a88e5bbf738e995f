package api

import (
	"fmt"
	"net/netip"
	"reflect"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
	"github.com/trivet-project/trivet/internal/auth"
)

// admitHead permits a provision that makes its machine a head, and each change of what that installs, to administrators
// only: the head has the keys of the cluster.
func (h *Handler) admitHead(c *change, old, next *trivet.Provision) error {
	had := old != nil && old.Spec.Head != nil
	if !had && next.Spec.Head == nil || old != nil && reflect.DeepEqual(old.Spec, next.Spec) {
		return nil
	}
	if !c.role.Includes(trivet.AccountAdmin) {
		return fmt.Errorf("%w: spec.head makes a machine a head, which needs role %s", trivet.ErrForbidden,
			trivet.AccountAdmin)
	}
	if next.Spec.Head == nil {
		return nil
	}
	return h.Fleet.CheckPromotion(c.tx, next)
}

// joinTimeout is how long what a run installs may join, from when its agent was granted the run.
const joinTimeout = 24 * time.Hour

// joinOf returns the right to join of a machine that its run makes a head; nil: it has none. It is made for the agent
// that the run is granted to, and stored nowhere.
func (h *Handler) joinOf(m *trivet.Machine, g *trivet.Grant) *trivet.RunJoin {
	role := h.Fleet.HeadRole(m)
	if role == "" || len(m.Spec.NICs) == 0 || g.Run.Network == nil {
		return nil
	}
	address, err := netip.ParsePrefix(g.Run.Network.Address)
	site, errSite := h.Fleet.Sites.GetShared(trivet.SiteName)
	if err != nil || errSite != nil || m.Status.AgentRelease.Compare(site.Status.ClusterVersion) < 0 {
		return nil // its program could not register
	}
	token, err := h.Keys.SignBoot(auth.BootToken{
		Purpose: auth.PurposeJoin, Machine: m.Name, MAC: m.Spec.NICs[0].MAC, Epoch: m.Status.Epoch,
		Run: g.Run.UID, Expires: h.Now().Add(joinTimeout),
	})
	if err != nil {
		h.Log.Error("cannot sign a join token", "machine", m.Name, "error", err)
		return nil
	}
	return &trivet.RunJoin{Token: apitypes.JoinText(h.trust, token, role), Heads: g.Heads,
		Address: address.Addr().String()}
}
