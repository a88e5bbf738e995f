package heads

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/cluster"
)

// Fresh is the new member of a head whose first start was cut off.
type Fresh struct {
	Member string         `json:"member"`
	Peers  []cluster.Peer `json:"peers"`
}

// again gives a head that still learns a new member for the one that it has lost. Said twice, it does so twice.
func (d *Door) again(r *http.Request, p auth.Peer, _ []byte) (any, error) {
	h, err := d.Fleet.Heads.Get(p.Name)
	if err != nil {
		return nil, err
	}
	counts := func(p cluster.Peer) bool { return MemberID(p.ID) == h.Status.Member && !p.Learner }
	if h.Status.State != trivet.HeadJoining || slices.ContainsFunc(d.Members.Peers(), counts) {
		return nil, fmt.Errorf("begin again: %w: %s counts already", trivet.ErrExists, h.Name)
	}
	if id, err := strconv.ParseUint(h.Status.Member, 16, 64); err == nil {
		ctx, cancel := context.WithTimeout(r.Context(), changeTime)
		defer cancel()
		if err := d.Members.Remove(ctx, id); err != nil {
			return nil, err
		}
	}
	h.Status.Member = ""
	peers, err := d.add(r.Context(), h)
	return Fresh{Member: h.Status.Member, Peers: peers}, err
}
