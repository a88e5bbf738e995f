package heads

import (
	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/fleet"
)

// Leftovers are those of the store's members that stand for a head which is to be out: the one of its record, and one that was
// added for it without its record getting to know. The latter has never started, so it is known by its address only, and a head
// that joins there may get it. peers must be older than what f knows: a head that joins has a record before it has a member.
func Leftovers(f *fleet.Fleet, h *trivet.Head, peers []cluster.Peer) (ids []uint64) {
	for _, p := range peers {
		own := MemberID(p.ID) == h.Status.Member
		added := p.Learner && p.Name == "" && p.URL == h.Status.Peer
		if own && !others(f, h, p, false) || added && !others(f, h, p, true) {
			ids = append(ids, p.ID)
		}
	}
	return ids
}

// others says whether a member is another head's that is not out, or, with soon, may become that.
func others(f *fleet.Fleet, h *trivet.Head, p cluster.Peer, soon bool) bool {
	for rec := range f.Heads.AllShared() {
		if rec.Name == h.Name || rec.Status.State == trivet.HeadRemoved {
			continue
		}
		joins := rec.Status.Member == "" && rec.Status.State == trivet.HeadJoining && !rec.Spec.Remove && rec.Status.Peer == p.URL
		if rec.Status.Member == MemberID(p.ID) || soon && joins {
			return true
		}
	}
	return false
}
