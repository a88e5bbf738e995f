// Package server assembles one head: its identity, the store's member, the listeners and the controllers, and runs
// them together.
package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/addressing"
	"github.com/trivet-project/trivet/internal/api"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/blob"
	"github.com/trivet-project/trivet/internal/bmc"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/console"
	"github.com/trivet-project/trivet/internal/controller/deadline"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/health"
	"github.com/trivet-project/trivet/internal/hostnet"
	"github.com/trivet-project/trivet/internal/limit"
	"github.com/trivet-project/trivet/internal/maintenance"
	"github.com/trivet-project/trivet/internal/membership"
	"github.com/trivet-project/trivet/internal/netboot"
	"github.com/trivet-project/trivet/internal/peer"
	"github.com/trivet-project/trivet/internal/presence"
	"github.com/trivet-project/trivet/internal/recovery"
	"github.com/trivet-project/trivet/internal/replica"
	"github.com/trivet-project/trivet/internal/runlog"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/takeover"
)

// Server is one head. New starts it, Run serves until its context ends, Close releases everything.
type Server struct {
	cfg       Config
	hosts     []string // where this head is reached
	metrics   *prometheus.Registry
	bmcErrors *bmc.Metrics
	listeners listeners
	limits    ports
	router    *router
	apiHTTP   *http.Server
	apiDone   chan error
	vip       *hostnet.VIP // nil: none
	local     *membership.Local
	member    *cluster.Member

	// What only a full head has.
	store        *store.Store
	fleet        *fleet.Fleet
	learnt       *state.Learnt
	records      *membership.Records
	registration *membership.Registration
	keeper       *maintenance.Keeper
	monitor      *peer.Monitor
	restart      context.CancelCauseFunc // ends Run; set by it
	heads        *headAddresses
	clock        *presence.Clock
	exchange     *presence.Exchange
	blobStore    *blob.Store
	blobs        *replica.Blobs
	logs         *runlog.Store
	faults       *diskFaults
	runLogs      *replica.Logs
	consoles     *console.Consoles
	backups      *recovery.Source
	api          *api.Handler
	health       *health.Source
	takeover     *takeover.Keeper
	deadlines    atomic.Pointer[deadline.Controller] // set once the controllers run
	leases       *addressing.Leases
	netboot      *netboot.Server

	// started: New has completed. stopping: the context of Run has ended.
	started, stopping atomic.Bool
}

// ErrNotJoined is the error of a start that was stopped before its head was a member. The next start continues with
// the same token.
var ErrNotJoined = errors.New("stopped before it had joined")

// ErrRestart is the error of a head that must start again, with the same configuration, to use other CAs or another
// program.
var ErrRestart = membership.ErrRestart

// New opens the data, starts the member and binds every port, so that a start fails here where it can.
func New(ctx context.Context, cfg Config) (*Server, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if err := runSteps(ctx, cfg.takeOver, cfg.findLiving); err != nil {
		return nil, explainDisk(err, cfg.Dir, cfg.Name)
	}
	s := &Server{cfg: cfg, metrics: prometheus.NewRegistry()}
	if err := s.start(ctx); err != nil {
		s.close()
		if ctx.Err() != nil && s.local != nil && s.local.IsJoining() {
			err = fmt.Errorf("%w: %w", ErrNotJoined, err)
		}
		return nil, explainDisk(err, cfg.Dir, s.name())
	}
	s.started.Store(true)
	return s, nil
}

func (s *Server) start(ctx context.Context) error {
	err := runSteps(ctx, s.openLimits, s.openLocal, s.openVIP, s.listen, s.serveAPI, s.establish, s.openMember)
	switch {
	case err != nil:
		return err
	case s.local.Witness():
		return s.assembleWitness()
	}
	if err := runSteps(ctx, s.catchUp, s.openStore, s.checkSealingKey, s.openFiles, s.assemble); err != nil {
		return err
	}
	return s.registration.Register(ctx)
}

// runSteps runs steps until one fails.
func runSteps(ctx context.Context, steps ...func(context.Context) error) error {
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// name returns the name of this head, as far as it is known.
func (s *Server) name() string {
	if s.local == nil {
		return s.cfg.Name
	}
	return s.local.Name()
}

func (s *Server) openLocal(context.Context) (err error) {
	s.local, err = membership.Open(membership.Config{
		Dir: s.cfg.Dir, Name: s.cfg.Name, Version: s.cfg.Version,
		Join: s.cfg.Join, JoinToken: s.cfg.JoinToken, Rejoin: s.cfg.Rejoin,
		FindCluster: s.cfg.findCluster, Log: s.cfg.Log,
	})
	return err
}

// openVIP prepares to share the address with the other heads. It fails before anything is written to the data directory
// or requested from other heads. A witness shares none.
func (s *Server) openVIP(context.Context) (err error) {
	if s.cfg.VIP != "" && !s.local.Witness() {
		s.vip, err = hostnet.New(hostnet.Config{Address: s.cfg.vip(), Interface: s.cfg.vipInterface(),
			Log: s.cfg.Log.With("part", "vip")})
	}
	return err
}

func (s *Server) listen(ctx context.Context) (err error) {
	if s.hosts, err = s.cfg.addresses(); err != nil {
		return err
	}
	return s.listeners.listen(ctx, &s.cfg, s.local.Witness())
}

// maxStreams bounds the requests of one connection: those of a balancer that ends TLS are of many callers. stalledTime
// is how long a connection of HTTP/2 may accept no byte: meanwhile no response ends by its deadline.
const (
	maxStreams  = 250
	stalledTime = 30 * time.Second
)

// serveAPI serves the API's port from here on: a head that joins must respond, and the member needs what others send.
func (s *Server) serveAPI(context.Context) error {
	s.router = &router{log: s.cfg.Log, root: s.local.Root, links: peer.NewLinks(s.memberURLs, s.cfg.Log),
		exits: peer.NewExits(s.memberURLs, s.succeed, s.cfg.Log)}
	s.apiHTTP = &http.Server{
		Handler: limit.Handler(s.router), TLSConfig: auth.ListenTLS(s.local.ServingCertificate),
		MaxHeaderBytes:    api.MaxHeader,
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, ErrorLog: debugLog(s.cfg.Log),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return limit.Context(peer.WithConn(peer.WithConnTime(ctx), c), c)
		},
		HTTP2:     &http.HTTP2Config{MaxConcurrentStreams: maxStreams, WriteByteTimeout: stalledTime},
		ConnState: s.router.links.ConnState,
	}
	s.apiDone = make(chan error, 1)
	bounded := limit.Listen(s.listeners.api, s.limits.api)
	go func() { s.apiDone <- served(s.apiHTTP.ServeTLS(bounded, "", "")) }() // until Close
	return nil
}

func (s *Server) establish(ctx context.Context) error {
	return s.local.Establish(ctx, membership.Addresses{
		Peer: s.APIURLs()[0], API: s.APIURLs(), Boot: s.BootURLs(),
		DHCP: s.cfg.dhcpAddresses(s.hosts), Names: s.cfg.certNames(s.hosts),
	})
}

// memberURLs returns where the members of the store are reached, by the names of their heads.
func (s *Server) memberURLs() map[string]string {
	urls := map[string]string{}
	for _, p := range s.member.Peers() {
		urls[p.Name] = p.URL
	}
	return urls
}

// succeed lets this head's member elect another leader where the process of the leader's head has ended.
func (s *Server) succeed(ctx context.Context, head string) {
	for _, p := range s.member.Peers() {
		if p.Name == head {
			s.member.Succeed(ctx, p.ID)
		}
	}
}

const (
	// leaderTimeout is how long a start waits for a leader before it serves what needs none.
	leaderTimeout = 10 * time.Second
	// firstLeaderTimeout is how long a first start does, which has nothing to serve yet. With the longest heartbeats, a
	// member alone elects itself within 35 s.
	firstLeaderTimeout = time.Minute
)

// openMember runs the store's member.
func (s *Server) openMember(ctx context.Context) error {
	cfg, err := s.local.MemberConfig()
	if err != nil {
		return err
	}
	cfg.Heartbeat, cfg.QuotaBytes = s.cfg.Heartbeat, int64(s.cfg.StoreQuota)
	if s.member, err = cluster.Open(ctx, cfg); err != nil {
		return err
	}
	s.local.SetMember(s.member)
	s.metrics.MustRegister(leaderGauge(s.member), termGauge(s.member), successionCounter(s.member),
		streamGauge(s.router.exits), usageCollector{s.member}, expiryGauge(s.local.Cert()))
	s.router.setSender(func(p auth.Peer, r *http.Request) error { return s.member.VerifySender(r, p.Name) })
	s.router.set(&s.router.members, s.member.PeerHandler())
	timeout := leaderTimeout
	if s.local.FirstStart() {
		timeout = firstLeaderTimeout
	}
	wait, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := s.member.WaitLeader(wait); err != nil && ctx.Err() != nil {
		return err
	}
	return nil
}

// catchUp waits until the member of a head that joins has what the others have written: before that, its copy may have
// values under keys that the cluster does not have any more.
func (s *Server) catchUp(ctx context.Context) error {
	if !s.local.IsJoining() {
		return nil
	}
	return s.member.CatchUp(ctx)
}

// ready returns why no client should be sent to this head.
func (s *Server) ready(context.Context) error {
	switch {
	case !s.started.Load(): // a first start has not written its administrator's file yet
		return fmt.Errorf("%w: this head is starting", trivet.ErrUnavailable)
	case s.stopping.Load():
		return fmt.Errorf("%w: this head is stopping", trivet.ErrUnavailable)
	}
	if err := writable(s.member); err != nil {
		return err
	}
	return s.member.CheckQuota()
}

// writable returns why a head with this member cannot serve writes.
func writable(m *cluster.Member) error {
	if !m.HasLeader() {
		return fmt.Errorf("%w: the cluster has no leader", trivet.ErrUnavailable)
	}
	return m.CheckSpace()
}

// APIURLs and BootURLs return where this head is reached.
func (s *Server) APIURLs() []string  { return urls("https", s.hosts, s.listeners.api) }
func (s *Server) BootURLs() []string { return urls("http", s.hosts, s.listeners.boot) }

// Trust returns the pins of the cluster's CAs, by which clients recognize the cluster.
func (s *Server) Trust() string { return s.local.Root().Trust() }

// DHCPAddr returns the address of the DHCP listener; not valid where there is none.
func (s *Server) DHCPAddr() netip.AddrPort { return s.listeners.dhcpAddr() }

// AdminFile returns the path of the administrator's credential, which the first start creates.
func AdminFile(dir string) string { return membership.AdminFile(dir) }
