package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/etcdhttp"

	"github.com/trivet-project/trivet"
)

// PeerTLS are the files, in PEM, by which a member proves itself to the others when it calls them, and knows them. They are
// read at each connection, so they may be replaced.
type PeerTLS struct{ Cert, Key, CA string }

// Peer is a member as the cluster knows it.
type Peer struct {
	ID      uint64
	Name    string // empty: it was added, and has not started yet
	URL     string // where the others reach it
	Learner bool   // it gets everything and counts for nothing
}

// PeerHandler answers the other members, with 503 from the member's end on. Whoever serves it must let nobody else in, and must
// not refuse by 403 or 410: these tell a member that it was removed.
func (m *Member) PeerHandler() http.Handler {
	h := etcdhttp.NewPeerHandler(m.etcd.GetLogger(), m.etcd.Server)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-m.etcd.Server.StoppingNotify(): // etcd would panic, or keep the caller waiting
			http.Error(w, "this member has stopped", http.StatusServiceUnavailable)
		default:
			h.ServeHTTP(w, r)
		}
	})
}

// IsPeerPath says whether a request is one for the PeerHandler.
func IsPeerPath(path string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return slices.Contains([]string{"raft", "members", "leases", "version", "downgrade"}, first)
}

// Peers are all members as this one knows them now, by name.
func (m *Member) Peers() (peers []Peer) {
	for _, p := range m.etcd.Server.Cluster().Members() {
		peer := Peer{ID: uint64(p.ID), Name: p.Name, Learner: p.IsLearner}
		if len(p.PeerURLs) > 0 {
			peer.URL = p.PeerURLs[0]
		}
		peers = append(peers, peer)
	}
	slices.SortFunc(peers, func(a, b Peer) int { return strings.Compare(a.Name+a.URL, b.Name+b.URL) })
	return peers
}

// IsLearner says whether this member still catches up.
func (m *Member) IsLearner() bool { return m.etcd.Server.IsLearner() }

// Revision is the store's that this member's own copy has reached.
func (m *Member) Revision() int64 { return m.etcd.Server.KV().Rev() }

// sayAgain is how long a change of this member's address may take. While an earlier change is not applied, the store drops it
// without an answer.
const sayAgain = 7 * time.Second

// SetURL tells the cluster where this member is reached, if that has changed. It tries until ctx ends.
func (m *Member) SetURL(ctx context.Context, url string) error {
	for {
		own := m.etcd.Server.Cluster().Member(types.ID(m.ID()))
		if own != nil && slices.Equal(own.PeerURLs, []string{url}) {
			return nil
		}
		try, cancel := context.WithTimeout(ctx, sayAgain)
		_, err := m.client.MemberUpdate(try, m.ID(), []string{url})
		dropped := err != nil && try.Err() != nil && ctx.Err() == nil
		cancel()
		if !dropped {
			return membership("set the address of", "this member", err)
		}
	}
}

// Add makes room for a member that will be reached at the URL, as a learner, and gives its ID and all members, by which it
// starts (Config.Join). Where a member of that URL was added and has not started, that is the one. It fails with ErrConflict
// while another one is still learning.
func (m *Member) Add(ctx context.Context, url string) (id uint64, all []Peer, err error) {
	if m.etcd.Server.ClusterVersion() == nil { // who joins would take it for one that it does not suit
		return 0, nil, membership("add", url, errors.New("the cluster has only just started"))
	}
	for _, p := range m.Peers() {
		switch {
		case p.URL == url && p.Name == "":
			return p.ID, m.Peers(), nil
		case p.URL == url:
			return 0, nil, membership("add", url, rpctypes.ErrPeerURLExist)
		}
	}
	resp, err := m.client.MemberAddAsLearner(ctx, []string{url})
	if err != nil {
		return 0, nil, membership("add", url, err)
	}
	for _, p := range resp.Members {
		peer := Peer{ID: p.ID, Name: p.Name, Learner: p.IsLearner}
		if len(p.PeerURLs) > 0 {
			peer.URL = p.PeerURLs[0]
		}
		all = append(all, peer)
	}
	return resp.Member.ID, all, nil
}

// Promote makes a learner count. It fails with ErrConflict while the learner has not caught up.
func (m *Member) Promote(ctx context.Context, id uint64) error {
	_, err := m.client.MemberPromote(ctx, id)
	if errors.Is(err, rpctypes.ErrMemberNotLearner) {
		return nil
	}
	return membership("promote", fmt.Sprintf("%x", id), err)
}

// Remove takes a member out for good: its ID never comes back. It fails with ErrConflict where the rest would have no quorum.
func (m *Member) Remove(ctx context.Context, id uint64) error {
	_, err := m.client.MemberRemove(ctx, id)
	if errors.Is(err, rpctypes.ErrMemberNotFound) {
		return nil
	}
	return membership("remove", fmt.Sprintf("%x", id), err)
}

// membership makes an error of a change of the cluster that tells what to do.
func membership(op, name string, err error) error {
	if err == nil {
		return nil
	}
	e := &trivet.Error{Op: op + " member", Name: name, Err: fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)}
	switch {
	case errors.Is(err, rpctypes.ErrMemberLearnerNotReady):
		e.Err, e.Hint = fmt.Errorf("%w: %w", trivet.ErrConflict, err), "it has not caught up; this is tried again"
	case errors.Is(err, rpctypes.ErrTooManyLearners):
		e.Err, e.Hint = fmt.Errorf("%w: %w", trivet.ErrConflict, err), "one head joins at a time; wait until the other one is a voter"
	case errors.Is(err, rpctypes.ErrUnhealthy), errors.Is(err, rpctypes.ErrMemberNotEnoughStarted):
		e.Err, e.Hint = fmt.Errorf("%w: %w", trivet.ErrConflict, err), "bring the heads that are down back first, or remove them"
	case errors.Is(err, rpctypes.ErrPeerURLExist), errors.Is(err, rpctypes.ErrMemberExist):
		e.Err, e.Hint = fmt.Errorf("%w: %w", trivet.ErrExists, err), "a head with this address is a member already"
	}
	return e
}
