package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/etcdhttp"

	"github.com/trivet-project/trivet"
)

// PeerTLS is the files, in PEM, of the certificate by which a member authenticates to the others, and of the CA by
// which it authenticates them. They are read for each connection, so they may be replaced.
type PeerTLS struct{ Cert, Key, CA string }

// Peer is a member as the cluster knows it.
type Peer struct {
	ID      uint64
	Name    string // empty: it was added, and has not started yet
	URL     string // where the others reach it
	Learner bool   // it replicates the log and does not vote
}

// FormatID returns a member's ID in the form of records and messages, 16 hex digits.
func FormatID(id uint64) string { return fmt.Sprintf("%016x", id) }

// ParseID parses what FormatID returned.
func ParseID(text string) (uint64, error) {
	id, err := strconv.ParseUint(text, 16, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: %q is not the ID of a member", trivet.ErrInvalid, text)
	}
	return id, nil
}

// PeerHandler serves the other members, and responds with 503 once the member stops. Its caller must authenticate
// members, and must not refuse them with 403 or 410, which etcd interprets as the removal of the member.
func (m *Member) PeerHandler() http.Handler {
	h := m.incoming.handler(etcdhttp.NewPeerHandler(m.etcd.GetLogger(), m.etcd.Server))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-m.etcd.Server.StoppingNotify(): // etcd would panic, or keep the caller waiting
			http.Error(w, "this member has stopped", http.StatusServiceUnavailable)
		default:
			h.ServeHTTP(w, r)
		}
	})
}

// IsPeerPath reports whether a request is for the PeerHandler.
func IsPeerPath(path string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return slices.Contains([]string{"raft", "members", "leases", "version", "downgrade"}, first)
}

// Peers returns all members that this one knows, sorted by name.
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

// IsLearner reports whether this member is a learner. etcd's own function ends a member that was removed.
func (m *Member) IsLearner() bool {
	own := m.etcd.Server.Cluster().Member(types.ID(m.ID()))
	return own != nil && own.IsLearner
}

// Revision returns the store's revision that this member's own copy has reached.
func (m *Member) Revision() int64 { return m.etcd.Server.KV().Rev() }

// setURLTimeout bounds one attempt to change this member's address. While an earlier change is not applied, the store
// drops it without a response.
const setURLTimeout = 7 * time.Second

// SetURL changes the URL where the other members reach this one, if it is another. It retries until ctx ends.
func (m *Member) SetURL(ctx context.Context, url string) error {
	for {
		own := m.etcd.Server.Cluster().Member(types.ID(m.ID()))
		if own != nil && slices.Equal(own.PeerURLs, []string{url}) {
			return nil
		}
		try, cancel := context.WithTimeout(ctx, setURLTimeout)
		_, err := m.client.MemberUpdate(try, m.ID(), []string{url})
		dropped := err != nil && try.Err() != nil && ctx.Err() == nil
		cancel()
		if !dropped {
			return memberError("set the address of", "this member", err)
		}
	}
}

// Add adds a member that the others will reach at the URL, as a learner. It returns its ID and all members, which it
// needs to start (Config.Join). Where a member of that URL was added before and has not started, that is the one. It
// fails with ErrConflict while another member is a learner.
func (m *Member) Add(ctx context.Context, url string) (id uint64, all []Peer, err error) {
	if m.etcd.Server.ClusterVersion() == nil { // the new member would find the versions incompatible
		return 0, nil, memberError("add", url, errors.New("the cluster has only just started"))
	}
	for _, p := range m.Peers() {
		switch {
		case p.URL == url && p.Name == "":
			return p.ID, m.Peers(), nil
		case p.URL == url:
			return 0, nil, memberError("add", url, rpctypes.ErrPeerURLExist)
		}
	}
	resp, err := m.client.MemberAddAsLearner(ctx, []string{url})
	if err != nil {
		return 0, nil, memberError("add", url, err)
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

// Promote makes a learner a voter. It fails with ErrConflict while the learner has not caught up.
func (m *Member) Promote(ctx context.Context, id uint64) error {
	_, err := m.client.MemberPromote(ctx, id)
	if errors.Is(err, rpctypes.ErrMemberNotLearner) {
		return nil
	}
	return memberError("promote", fmt.Sprintf("%x", id), err)
}

// Remove removes a member, which is final: its ID is never used again. It fails with ErrConflict where the rest would
// have no quorum.
func (m *Member) Remove(ctx context.Context, id uint64) error {
	_, err := m.client.MemberRemove(ctx, id)
	if errors.Is(err, rpctypes.ErrMemberNotFound) {
		return nil
	}
	return memberError("remove", fmt.Sprintf("%x", id), err)
}

// memberError adds the operation, the kind and a hint to the error of a change of the members.
func memberError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	e := &trivet.Error{Op: op + " member", Name: name, Err: fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)}
	conflict := fmt.Errorf("%w: %w", trivet.ErrConflict, err)
	switch {
	case errors.Is(err, rpctypes.ErrMemberLearnerNotReady):
		e.Err, e.Hint = conflict, "it has not caught up; this is retried"
	case errors.Is(err, rpctypes.ErrTooManyLearners):
		e.Err, e.Hint = conflict, "one head joins at a time; wait until the other one is a voter"
	case errors.Is(err, rpctypes.ErrUnhealthy), errors.Is(err, rpctypes.ErrMemberNotEnoughStarted):
		e.Err, e.Hint = conflict, "bring the heads that are down back first, or remove them"
	case errors.Is(err, rpctypes.ErrPeerURLExist), errors.Is(err, rpctypes.ErrMemberExist):
		e.Err, e.Hint = fmt.Errorf("%w: %w", trivet.ErrExists, err), "a head with this address is a member already"
	}
	return e
}
