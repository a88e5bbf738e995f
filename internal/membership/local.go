package membership

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/peer"
)

// Name returns this head's name, which is known after Establish.
func (l *Local) Name() string { return l.data.Name }

// Witness reports whether this head is a witness, or joins as one.
func (l *Local) Witness() bool {
	return l.data.witness() || l.joining && l.token.Role == trivet.RoleWitness
}

// IsJoining reports whether this is the start by which the head joins, or that is to complete the join.
func (l *Local) IsJoining() bool { return l.joining || l.data.joined() && !l.data.Started }

// FirstStart reports whether no start of this head has completed yet.
func (l *Local) FirstStart() bool { return !l.data.Started }

// Root returns the cluster's CA; nil before it is known.
func (l *Local) Root() *auth.Root { return l.root.Load() }

// Keys returns the cluster's keys; nil for a witness.
func (l *Local) Keys() *auth.Keys { return l.keys }

// Cert returns the certificate of this head's member.
func (l *Local) Cert() auth.CertFunc { return l.certs.current }

// Client returns the client by which this head calls others.
func (l *Local) Client() *peer.Client { return l.client }

// Addresses returns where this head is reached.
func (l *Local) Addresses() Addresses { return l.addr }

// Started returns the time of this start.
func (l *Local) Started() time.Time { return l.started }

// Info returns what this head reports of itself.
func (l *Local) Info() peer.Info {
	info := peer.Info{Head: l.data.Name, Version: l.cfg.Version, Protocol: peer.Protocol, Time: time.Now(),
		Started: l.started, CAs: l.inUse(), Program: l.program.Load()}
	m := l.member.Load()
	if m == nil { // it verifies its membership first
		info.Member = l.data.Member
		return info
	}
	info.Member, info.Revision, info.Index = cluster.FormatID(m.ID()), m.Revision(), m.Acknowledged()
	if refused := l.refused.Load(); refused != nil {
		info.Refused = (*refused)()
	}
	if id := m.Leader(); id != 0 {
		info.Leader = cluster.FormatID(id)
	}
	return info
}

// MemberConfig returns the configuration of this head's member.
func (l *Local) MemberConfig() (cluster.Config, error) {
	if dir := l.path("store/etcd"); l.data.Started && !fileExists(dir) { // an empty one would be that of a new cluster
		return cluster.Config{}, &trivet.Error{Op: "open store", Name: dir,
			Err:  fmt.Errorf("%w: it existed before", trivet.ErrNotFound),
			Hint: cluster.HintReplace}
	}
	cfg := cluster.Config{Dir: l.path("store"), Name: l.data.Name, Token: l.Root().Cluster(), Logger: l.cfg.Log,
		TLS: l.certs.peerTLS()}
	if l.source() != nil {
		cfg.URL, cfg.FromURL = l.addr.Peer, true
	}
	if l.data.joined() && !l.data.Started {
		cfg.URL, cfg.Join = l.data.URL, l.data.Peers
	}
	return cfg, nil
}

// SetMember sets the member that runs.
func (l *Local) SetMember(m *cluster.Member) { l.member.Store(m) }

// SetRefused sets what returns how many values of the store this head refuses.
func (l *Local) SetRefused(count func() int) { l.refused.Store(&count) }

// SaveStarted records in the data directory that a start has completed, and where the others reach this head.
func (l *Local) SaveStarted() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.data.Started, l.data.URL, l.data.Member = true, l.addr.Peer, cluster.FormatID(l.member.Load().ID())
	if err := l.saveData(); err != nil {
		return err
	}
	if l.data.joined() {
		_ = os.Remove(l.joinIDFile(l.data.Token)) // not used any more; no start reads it if it remains
	}
	return nil
}

// SaveMembers records in the data directory the members that the next start verifies its membership with.
func (l *Local) SaveMembers() error {
	m := l.member.Load()
	if !m.HasLeader() {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.data.Member, l.data.Peers = cluster.FormatID(m.ID()), m.Peers()
	return l.saveData()
}

// otherMembers returns the other members that this head knew last.
func (l *Local) otherMembers() (peers []cluster.Peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.data.Peers {
		if cluster.FormatID(p.ID) != l.data.Member && p.URL != "" && p.URL != l.data.URL && p.URL != l.addr.Peer {
			peers = append(peers, p)
		}
	}
	return peers
}

// ErrRemoved is the error of this head where it was removed.
func (l *Local) ErrRemoved() error {
	return &trivet.Error{Op: "run head", Name: l.data.Name, Hint: hintRejoin,
		Err: fmt.Errorf("%w: it was removed from cluster %s and serves nothing", trivet.ErrForbidden,
			l.Root().Cluster())}
}

// isUnavailable reports whether an error is that of a head that cannot write now.
func isUnavailable(err error) bool {
	return errors.Is(err, trivet.ErrUnavailable) || errors.Is(err, trivet.ErrUnknown)
}
