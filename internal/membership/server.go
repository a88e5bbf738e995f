package membership

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/peer"
)

// Members is the membership of the store, as [cluster.Member] has it.
type Members interface {
	Add(ctx context.Context, url string) (id uint64, all []cluster.Peer, err error)
	Remove(ctx context.Context, id uint64) error
	Peers() []cluster.Peer
	HasLeader() bool
}

// ServerConfig is what a Server needs.
type ServerConfig struct {
	Info    func() peer.Info // what this head reports of itself
	Members Members
	Records *Records   // nil on a witness
	Keys    *auth.Keys // nil on a witness
	// Acknowledged returns the index of the last entry of the log that a member is known to have written. nil on a
	// witness.
	Acknowledged func(head, member string) uint64
	Incarnation  func() string // of the cluster; nil on a witness
	// Programs returns the content of a program that this head has; nil on a witness.
	Programs func(context.Context, trivet.BlobRef) (io.ReadCloser, error)
	// Well reports whether another head has been healthy for this long since its start; nil on a witness.
	Well func(*trivet.Head, time.Duration) bool
	Log  *slog.Logger
}

// Server serves the requests of heads that join, that verify their membership, or whose certificate expires.
type Server struct {
	ServerConfig
	joins   chan struct{} // limits concurrent checks of join tokens
	sources peer.Sources
}

// maxConcurrentJoins bounds the requests whose token is checked at the same time: their senders may be
// unauthenticated, and each check reads the latest revision by the quorum.
const maxConcurrentJoins = 16

// changeTimeout bounds one change of the store's members: of two at once the store drops one without a response.
const changeTimeout = 5 * time.Second

// NewServer returns a server, to be registered on a [peer.Server].
func NewServer(cfg ServerConfig) *Server {
	return &Server{ServerConfig: cfg, joins: make(chan struct{}, maxConcurrentJoins)}
}

// Register adds the endpoints. A witness only confirms memberships.
func (s *Server) Register(p *peer.Server) {
	p.Register(peer.Endpoint{Path: verifyPath, Access: peer.AnyHead, Handle: s.verify})
	if s.Records == nil {
		return
	}
	p.Register(peer.Endpoint{Path: joinPath, Access: peer.Unauthenticated, Handle: s.join})
	p.Register(peer.Endpoint{Path: newMemberPath, Access: peer.Member, Handle: s.newMember})
	for _, name := range auth.RingNames {
		text := func() []byte { return s.Keys.Ring(name).Text() }
		p.Register(peer.Endpoint{Path: keysPath(name), Access: peer.FullMember, Handle: s.ring(text)})
	}
	p.Register(peer.Endpoint{Path: keysPath(trivet.BootCAKey), Access: peer.FullMember,
		Handle: s.ring(func() []byte { return s.Keys.BootCAFile() })})
	p.Register(peer.Endpoint{Path: upgradePath, Access: peer.Member, Handle: s.upgrade})
	p.RegisterHandler(programPath+"{digest}", peer.Member, http.HandlerFunc(s.program))
	p.Register(peer.Endpoint{Path: casPath, Access: peer.Member, Handle: s.cas})
	p.Register(peer.Endpoint{Path: renewPath, Access: peer.ExpiredMember, Handle: s.renew})
}

// hintRejoin is the hint for a head that was removed.
const hintRejoin = "the cluster does not use its data any more; to let it join again as a new head: get a token with " +
	"'trivet head token' on a member, and start it with --rejoin --join URL --token TOKEN, " +
	"which moves the old data aside"

func errRemoved(head string) error {
	return &trivet.Error{Op: "verify membership", Kind: "Head", Name: head, Hint: hintRejoin, Err: errRemovedHead}
}
