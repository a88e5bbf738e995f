// Package server assembles one head: the store's member, the doors and the controllers, and runs them together.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/addressing"
	"github.com/trivet-project/trivet/internal/api"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/blob"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/heads"
	"github.com/trivet-project/trivet/internal/hostnet"
	"github.com/trivet-project/trivet/internal/netboot"
	"github.com/trivet-project/trivet/internal/presence"
	"github.com/trivet-project/trivet/internal/runlog"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// Server is one head. New makes it, Run serves until its context ends, Close gives everything up.
type Server struct {
	cfg      Config
	front    *front
	apiHTTP  *http.Server
	apiDone  chan error
	metrics  *prometheus.Registry
	data     dataFile
	member   *cluster.Member
	store    *store.Store
	fleet    *fleet.Fleet
	presence *presence.Tracker
	blobs    *blob.Store
	copies   *heads.Blobs
	logs     *runlog.Store
	hosts    []string
	doors    doors
	api      *api.Handler
	netboot  *netboot.Server
	leases   *addressing.Leases
	vip      *hostnet.VIP // nil: none
	// opened: New has done all of a start. leaving: it is told to stop.
	opened, leaving atomic.Bool
	// introduced: New has written how this head is reached; else Run does.
	introduced bool

	begun   time.Time
	token   heads.Token // by which it joins
	joining bool
	// unusedJoin: there is a token, and this head is a member already.
	unusedJoin bool
	// learning: another member says that this one does not count yet.
	learning bool
	root     *auth.Root
	keys     *auth.Keys // nil for a witness
	// listenCert is what the API's port proves itself by, peer the key and certificate of the member.
	listenCert atomic.Pointer[func(*tls.ClientHelloInfo) (*tls.Certificate, error)]
	peer       atomic.Pointer[tls.Certificate]
	caller     *heads.Caller
	circle     *heads.Circle
	dataMu     sync.Mutex // guards data once Run has begun
}

// New opens the data, starts the member and binds every port, so that what can go wrong at a start goes wrong here.
func New(ctx context.Context, cfg Config) (*Server, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, metrics: prometheus.NewRegistry(), begun: time.Now().UTC().Truncate(time.Second)}
	s.metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.caller = heads.NewCaller(s.ownCert, func() *auth.Root { return s.root }, s.self)
	err := s.run(ctx, s.openData, s.plan, s.openVIP, s.bind, s.openFront, s.identify, s.certify, s.prove, s.tellUnused,
		s.beginAgain, s.openMember)
	switch {
	case err != nil:
	case s.data.witness():
		err = s.openWitness(ctx)
	default:
		err = s.run(ctx, s.openStore, s.openFiles, s.assemble, s.introduce)
	}
	if err != nil {
		s.Close()
		if ctx.Err() != nil && s.first() {
			err = fmt.Errorf("%w: %w", ErrNotJoined, err)
		}
		return nil, err
	}
	s.opened.Store(true)
	return s, nil
}

// run takes steps until one fails.
func (s *Server) run(ctx context.Context, steps ...func(context.Context) error) error {
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// openFront serves the API's port from here on: the member may need what others send.
func (s *Server) openFront(context.Context) error {
	s.front = &front{log: s.cfg.Log}
	s.apiHTTP = &http.Server{
		Handler: s.front, TLSConfig: auth.ListenTLS(s.shownCert), MaxHeaderBytes: api.MaxHeader, ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout: 2 * time.Minute, ErrorLog: quiet(s.cfg.Log),
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context { return heads.WithConnected(ctx) },
	}
	s.apiDone = make(chan error, 1)
	go func() { s.apiDone <- served(s.apiHTTP.ServeTLS(s.doors.api, "", "")) }() // until Close
	return nil
}

func (s *Server) shownCert(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if get := s.listenCert.Load(); get != nil {
		return (*get)(hello)
	}
	return nil, fmt.Errorf("%w: this head is starting", trivet.ErrUnavailable)
}

// leaderPatience is how long a start waits for a leader before it serves what needs none.
const leaderPatience = 10 * time.Second

// openMember runs the store's member.
func (s *Server) openMember(ctx context.Context) (err error) {
	if dir := s.path("store/etcd"); !s.data.isNew() && !fileExists(dir) { // an empty one would be another cluster's
		return &trivet.Error{Op: "open store", Name: dir, Err: fmt.Errorf("%w: it was there before", trivet.ErrNotFound),
			Hint: "put the folder's backup back, or let this head join as a new one: --rejoin --join URL --token TOKEN"}
	}
	cfg := cluster.Config{Dir: s.path("store"), Name: s.data.Name, Token: s.root.Cluster(), Logger: s.cfg.Log, TLS: s.peerTLS(),
		Heartbeat: s.cfg.Heartbeat}
	if s.data.Token != "" && s.data.isNew() {
		cfg.URL, cfg.Join = s.data.URL, s.data.Peers
	}
	if s.member, err = cluster.Open(ctx, cfg); err != nil {
		return err
	}
	s.tellLeader()
	s.front.set(&s.front.peers, s.member.PeerHandler())
	wait, cancel := context.WithTimeout(ctx, leaderPatience)
	defer cancel()
	if err := s.member.WaitLeader(wait); err != nil && ctx.Err() != nil {
		return err
	}
	return nil
}

func (s *Server) openStore(ctx context.Context) (err error) {
	s.store = store.New(s.member.Client(), store.Options{Head: s.data.Name, Term: s.member.Term, Logger: s.cfg.Log, Metrics: s.metrics})
	s.fleet, s.presence = fleet.New(state.New(s.store), s.data.Name, s.cfg.Log), presence.New()
	s.fleet.AgentUp = s.presence.Up
	s.circle = heads.NewCircle(s.fleet, s.caller, s.cfg.Log)
	return s.store.Start(ctx)
}

func (s *Server) openFiles(context.Context) (err error) {
	// Images stop before they take the room that the store needs.
	if s.blobs, err = blob.Open(s.path("blobs"), blob.Options{Reserve: 2 * cluster.DefaultReserve}); err != nil {
		return err
	}
	s.copies = heads.NewBlobs(heads.BlobConfig{Self: s.data.Name, Store: s.blobs, Fleet: s.fleet, Root: s.root, Cert: s.ownCert,
		Log: s.cfg.Log.With("part", "blobs"), Metrics: s.metrics})
	s.logs, err = runlog.Open(s.path("logs"))
	return err
}

// assemble wires the doors.
func (s *Server) assemble(context.Context) (err error) {
	logs := &heads.Logs{Store: s.logs, Fleet: s.fleet, Caller: s.caller}
	s.api, err = api.New(api.Config{
		Fleet: s.fleet, Presence: s.presence, Keys: s.keys, Blobs: s.blobs, Copies: s.copies, Logs: logs, Log: s.cfg.Log, Metrics: s.metrics,
		Version: trivet.Version{Version: s.cfg.Version, Cluster: s.root.Cluster(), Head: s.data.Name},
		Ready:   s.ready, CheckTemplate: checkTemplate, Cluster: s.cluster,
	})
	if err != nil {
		return err
	}
	s.front.set(&s.front.api, s.api)
	removed := s.removed
	s.front.out.Store(&removed)
	s.front.set(&s.front.heads, heads.New(heads.Config{
		Root: s.root, Members: s.member, Self: s.self, Fleet: s.fleet, Presence: s.presence, Keys: s.keys, Blobs: s.copies, Logs: logs, Log: s.cfg.Log}))
	s.leases = addressing.New(addressing.Config{Tables: s.fleet.Tables, Shared: s.cfg.shared().Addr(), Quorum: s.member.HasLeader,
		Logger: s.cfg.Log.With("part", "addressing"), Registry: s.metrics})
	s.netboot, err = netboot.New(netboot.Config{
		Leases: s.leases,
		Tables: s.fleet.Tables, Head: s.data.Name, Live: s.circle.Live, Quorum: s.member.HasLeader, VIP: s.cfg.shared(),
		Keys: s.keys, CA: s.root.Pin(), Blobs: s.copies.Boot(),
		Port: portOf(s.doors.boot.Addr()), IPXEDir: s.cfg.IPXEDir, StepReached: s.fleet.ReachBootStep, PhoneHome: s.fleet.PhoneHome,
		Logger: s.cfg.Log.With("part", "netboot"), Registry: s.metrics,
	})
	if err != nil {
		return err
	}
	return s.doors.listenDHCP(&s.cfg, s.netboot, s.answering(s.netboot), s.metrics)
}

// removed says whether a head is out, as far as this one's copy of the records knows. It is so for good.
func (s *Server) removed(head string) bool {
	h, err := s.fleet.Heads.GetShared(head)
	return err == nil && h.Status.State == trivet.HeadRemoved
}

func checkTemplate(t *trivet.Template) error { return workflow.Check(t) }

// untilDrained gives a context that ends a while after ctx: the head still serves then, and says that it is not ready, so that
// load balancers turn away from it first.
func (s *Server) untilDrained(ctx context.Context) (context.Context, context.CancelFunc) {
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	leave := context.AfterFunc(ctx, func() {
		s.leaving.Store(true)
		s.front.leaving.Store(true)
		if s.cfg.Drain > 0 {
			s.cfg.Log.Info("stopping: not ready from now on, and serving for a while", "drain", s.cfg.Drain)
		}
		select {
		case <-time.After(s.cfg.Drain):
		case <-serving.Done():
		}
		stop()
	})
	return serving, func() { leave(); stop() }
}

// ready says why nobody should be sent to this head.
func (s *Server) ready(context.Context) error {
	switch {
	case !s.opened.Load(): // a first start has not written its administrator's file yet
		return fmt.Errorf("%w: this head is starting", trivet.ErrUnavailable)
	case s.leaving.Load():
		return fmt.Errorf("%w: this head is stopping", trivet.ErrUnavailable)
	}
	return s.writable()
}

// writable says why this head cannot serve writes.
func (s *Server) writable() error {
	if !s.member.HasLeader() {
		return fmt.Errorf("%w: the cluster has no leader", trivet.ErrUnavailable)
	}
	return s.member.CheckSpace()
}

// Run serves until ctx ends or a part fails, and then lets requests end in order.
func (s *Server) Run(ctx context.Context) error {
	told := ctx
	ctx, stop := s.untilDrained(ctx)
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case err := <-s.apiDone:
			return err
		case err := <-s.member.Failed():
			if errors.Is(err, cluster.ErrRemoved) {
				return s.out()
			}
			return fmt.Errorf("the store's member ended: %w", err)
		}
	})
	g.Go(func() error { s.keepCertified(ctx); return nil })
	if s.data.witness() {
		g.Go(func() error { return s.attendWitness(ctx) })
		s.cfg.Log.Info("ready", "head", s.data.Name, "role", s.data.Role, "cluster", s.root.Cluster(), "peer", s.APIURLs()[0])
	} else {
		s.runHead(ctx, g)
		g.Go(func() error { s.runVIP(ctx, told); return nil })
		s.cfg.Log.Info("ready", "head", s.data.Name, "cluster", s.root.Cluster(), "api", s.APIURLs(), "boot", s.BootURLs())
	}
	return g.Wait()
}

// runHead runs what only a full head has.
func (s *Server) runHead(ctx context.Context, g *errgroup.Group) {
	bootServer := s.netboot.HTTPServer()
	g.Go(func() error { return served(bootServer.Serve(s.doors.boot)) })
	g.Go(func() error { return s.doors.serveDatagrams(ctx) })
	g.Go(func() error { return s.api.Run(ctx) })
	g.Go(func() error { return s.netboot.Run(ctx) })
	g.Go(func() error { return s.leases.Run(ctx) })
	g.Go(func() error { return s.runControllers(ctx) })
	g.Go(func() error { s.caller.Listen(ctx, s.fleet, s.presence); return nil })
	g.Go(func() error { s.introduceLater(ctx); return nil })
	g.Go(func() error {
		if err := s.circle.Run(ctx); err != nil {
			return s.out()
		}
		return nil
	})
	g.Go(func() error { s.keepUp(ctx); return nil })
	g.Go(func() error {
		<-ctx.Done()
		s.api.Drain()
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
		defer cancel()
		return s.drain(drain, bootServer)
	})
}

// drain lets the requests of the API and the downloads of machines end side by side, so that neither has less time for the
// other, and cuts downloads that outlast ctx. Neither door takes new ones.
func (s *Server) drain(ctx context.Context, bootServer *http.Server) error {
	var requests sync.WaitGroup
	defer requests.Wait()
	requests.Go(func() { s.front.drain(ctx) })
	return shutdown(ctx, bootServer)
}

func (s *Server) certificate() *auth.ServerCert {
	names := append([]string{"localhost", "127.0.0.1", "::1"}, s.hosts...)
	if s.cfg.VIP != "" {
		names = append(names, s.cfg.shared().Addr().String())
	}
	return s.keys.CA.ServerCert(func() []string { return names }, time.Now)
}

func (s *Server) unseal(secret *trivet.Secret, key string) (string, error) {
	value, err := s.keys.Sealer.Open(auth.FieldRef{Kind: "Secret", Name: secret.Name, Field: key}, secret.Spec.Data[key])
	if err != nil {
		return "", err
	}
	return value.Reveal(), nil
}

// APIURLs and BootURLs are where this head is reached.
func (s *Server) APIURLs() []string  { return urls("https", s.hosts, s.doors.api.Addr()) }
func (s *Server) BootURLs() []string { return urls("http", s.hosts, s.doors.boot.Addr()) }

// Pin is what clients know the cluster by.
func (s *Server) Pin() string { return s.root.Pin() }

// DHCPAddr is the DHCP listener's address; not valid where there is none.
func (s *Server) DHCPAddr() netip.AddrPort { return s.doors.dhcpAddr() }

// Close gives up what New has opened. Run must have ended.
func (s *Server) Close() {
	if s.copies != nil {
		s.copies.Close()
	}
	if s.vip != nil {
		s.vip.Close()
	}
	if s.blobs != nil {
		_ = s.blobs.Close()
	}
	if s.logs != nil {
		_ = s.logs.Close()
	}
	if s.store != nil {
		s.store.Close()
	}
	if s.member != nil {
		s.member.Close()
	}
	if s.apiHTTP != nil {
		_ = s.apiHTTP.Close()
	}
	s.caller.Close()
	s.doors.close()
}

func served(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// shutdown lets requests end, and cuts those that do not.
func shutdown(ctx context.Context, srv *http.Server) error {
	if err := srv.Shutdown(ctx); err != nil {
		return srv.Close()
	}
	return nil
}

// AdminFile is where the first start leaves the administrator's credential.
func AdminFile(dir string) string { return filepath.Join(dir, "admin.yaml") }

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
