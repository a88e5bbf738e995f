// Package server assembles one head: the store's member, the doors and the controllers, and runs them together.
package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/api"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/blob"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/controller"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/heads"
	"github.com/trivet-project/trivet/internal/netboot"
	"github.com/trivet-project/trivet/internal/runlog"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/wire"
	"github.com/trivet-project/trivet/internal/workflow"
)

// Server is one head. New makes it, Run serves until its context ends, Close gives everything up.
type Server struct {
	cfg     Config
	front   *front
	apiHTTP *http.Server
	apiDone chan error
	metrics *prometheus.Registry
	data    dataFile
	member  *cluster.Member
	store   *store.Store
	fleet   *fleet.Fleet
	keys    *auth.Keys
	blobs   *blob.Store
	logs    *runlog.Store
	hosts   []string
	doors   doors
	api     *api.Handler
	netboot *netboot.Door
	// introduced: New has written how this head is reached; else Run does.
	introduced bool
}

// New opens the data, starts the member and binds every port, so that what can go wrong at a start goes wrong here.
func New(ctx context.Context, cfg Config) (*Server, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, metrics: prometheus.NewRegistry()}
	s.metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, step := range []func(context.Context) error{
		s.openData, s.bind, s.identify, s.openFront, s.openStore, s.openFiles, s.assemble, s.introduce,
	} {
		if err := step(ctx); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

// openFront serves the API's port from here on: the member may need what others send.
func (s *Server) openFront(context.Context) error {
	if err := s.certify(); err != nil {
		return err
	}
	s.front = &front{ca: s.keys.CA}
	s.apiHTTP = &http.Server{
		Handler: s.front, TLSConfig: s.certificate().TLS(), MaxHeaderBytes: api.MaxHeader, ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout: 2 * time.Minute, ErrorLog: quiet(s.cfg.Log),
	}
	s.apiDone = make(chan error, 1)
	go func() { s.apiDone <- served(s.apiHTTP.ServeTLS(s.doors.api, "", "")) }() // until Close
	return nil
}

// leaderPatience is how long a start waits for a leader before it serves what needs none.
const leaderPatience = 10 * time.Second

func (s *Server) openStore(ctx context.Context) (err error) {
	if dir := s.path("store/etcd"); !s.data.isNew() && !fileExists(dir) { // an empty one would be another cluster's
		return &trivet.Error{Op: "open store", Name: dir, Err: fmt.Errorf("%w: it was there before", trivet.ErrNotFound),
			Hint: "put the folder's backup back"}
	}
	s.member, err = cluster.Open(ctx, cluster.Config{
		Dir: s.path("store"), Name: s.data.Name, Token: s.keys.CA.Cluster(), Logger: s.cfg.Log,
		URL: s.data.URL, Join: s.data.Peers, TLS: s.peerFiles(),
	})
	if err != nil {
		return err
	}
	s.metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "trivet_store_leader", Help: "1 where this head's member leads."},
		func() float64 {
			if s.member.Leads() {
				return 1
			}
			return 0
		}))
	s.front.set(&s.front.peers, s.member.PeerHandler())
	wait, cancel := context.WithTimeout(ctx, leaderPatience)
	defer cancel()
	if err := s.member.AwaitLeader(wait); err != nil && ctx.Err() != nil {
		return err
	}
	s.store = store.New(s.member.Client(), store.Options{Logger: s.cfg.Log, Metrics: s.metrics})
	s.fleet = fleet.New(fleet.NewTables(s.store), s.data.Name, s.cfg.Log)
	return s.store.Start(ctx)
}

func (s *Server) openFiles(context.Context) (err error) {
	// Images stop before they take the room that the store needs.
	if s.blobs, err = blob.Open(s.path("blobs"), blob.Options{Reserve: 2 * cluster.DefaultReserve}); err != nil {
		return err
	}
	s.logs, err = runlog.Open(s.path("logs"))
	return err
}

// assemble wires the doors.
func (s *Server) assemble(context.Context) (err error) {
	s.api, err = api.New(api.Config{
		Fleet: s.fleet, Keys: s.keys, Blobs: s.blobs, Logs: s.logs, Log: s.cfg.Log, Metrics: s.metrics,
		Version: wire.Version{Version: s.cfg.Version, Cluster: s.keys.CA.Cluster(), Head: s.data.Name},
		Ready:   s.ready, CheckTemplate: checkTemplate,
	})
	if err != nil {
		return err
	}
	s.front.set(&s.front.api, s.api)
	s.front.set(&s.front.heads, heads.New(heads.Config{Fleet: s.fleet, Keys: s.keys, Members: s.member, Log: s.cfg.Log}))
	s.netboot, err = netboot.New(netboot.Config{
		Tables: s.fleet.Tables, Head: s.data.Name, Keys: s.keys, CA: s.keys.CA.Pin(), Blobs: s.blobs.Handler(),
		Port: portOf(s.doors.boot.Addr()), IPXEDir: s.cfg.IPXEDir, Seen: s.fleet.Seen, PhoneHome: s.fleet.PhoneHome,
		Logger: s.cfg.Log.With("part", "netboot"), Registry: s.metrics,
	})
	if err != nil {
		return err
	}
	return s.doors.listenDHCP(&s.cfg, s.netboot, s.metrics)
}

func checkTemplate(t *trivet.Template) error { return workflow.Check(t) }

// ready says why this head cannot serve writes.
func (s *Server) ready(context.Context) error {
	if !s.member.HasLeader() {
		return fmt.Errorf("%w: the cluster has no leader", trivet.ErrUnavailable)
	}
	return s.member.Room()
}

// Run serves until ctx ends or a part fails, and then lets requests end in order.
func (s *Server) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	bootServer := s.netboot.HTTPServer()
	g.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case err := <-s.apiDone:
			return err
		}
	})
	g.Go(func() error { return served(bootServer.Serve(s.doors.boot)) })
	g.Go(func() error { return s.doors.serveDatagrams(ctx) })
	g.Go(func() error { return s.api.Run(ctx) })
	g.Go(func() error { return s.netboot.Run(ctx) })
	g.Go(func() error { controller.Run(ctx, s.controllers()); return nil })
	g.Go(func() error { s.introduceLater(ctx); return nil })
	g.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case err := <-s.member.Failed():
			return fmt.Errorf("the store's member ended: %w", err)
		}
	})
	g.Go(func() error {
		<-ctx.Done()
		s.api.Drain()
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
		defer cancel()
		s.front.drain(drain)
		return shutdown(drain, bootServer)
	})
	s.cfg.Log.Info("ready", "head", s.data.Name, "cluster", s.keys.CA.Cluster(), "api", s.APIURLs(), "boot", s.BootURLs())
	return g.Wait()
}

func (s *Server) controllers() controller.Config {
	return controller.Config{Fleet: s.fleet, Members: s.member, Unseal: s.unseal, Logs: s.logs, Log: s.cfg.Log}
}

func (s *Server) certificate() *auth.ServerCert {
	names := append([]string{"localhost", "127.0.0.1", "::1"}, s.hosts...)
	return s.keys.CA.ServerCert(func() []string { return names }, time.Now)
}

func (s *Server) unseal(secret *trivet.Secret, key string) (string, error) {
	value, err := s.keys.Sealer.Open(auth.Place{Kind: "Secret", Name: secret.Name, Field: key}, secret.Spec.Data[key])
	if err != nil {
		return "", err
	}
	return value.Reveal(), nil
}

// APIURLs and BootURLs are where this head is reached.
func (s *Server) APIURLs() []string  { return urls("https", s.hosts, s.doors.api.Addr()) }
func (s *Server) BootURLs() []string { return urls("http", s.hosts, s.doors.boot.Addr()) }

// Pin is what clients know the cluster by.
func (s *Server) Pin() string { return s.keys.CA.Pin() }

// DHCPAddr is the DHCP listener's address; not valid where there is none.
func (s *Server) DHCPAddr() netip.AddrPort { return s.doors.dhcpAddr() }

// Close gives up what New has opened. Run must have ended.
func (s *Server) Close() {
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
