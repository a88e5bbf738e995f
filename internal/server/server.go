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
	"github.com/trivet-project/trivet/internal/netboot"
	"github.com/trivet-project/trivet/internal/runlog"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/wire"
	"github.com/trivet-project/trivet/internal/workflow"
)

// Server is one head. New makes it, Run serves until its context ends, Close gives everything up.
type Server struct {
	cfg     Config
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
		s.openData, s.openStore, s.openKeys, s.openFiles, s.bind, s.assemble, s.introduce,
	} {
		if err := step(ctx); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

func (s *Server) openStore(ctx context.Context) (err error) {
	if s.hosts, err = s.cfg.addresses(); err != nil {
		return err
	}
	s.member, err = cluster.Start(ctx, cluster.Config{
		Dir: filepath.Join(s.cfg.Dir, "store"), Name: s.cfg.Name, Logger: s.cfg.Log,
	})
	if err != nil {
		return err
	}
	s.store = store.New(s.member.Client(), store.Options{Logger: s.cfg.Log, Metrics: s.metrics})
	s.fleet = fleet.New(fleet.NewTables(s.store), s.cfg.Name, s.cfg.Log)
	return s.store.Start(ctx)
}

func (s *Server) openKeys(context.Context) (err error) {
	dir := filepath.Join(s.cfg.Dir, "keys")
	s.keys, err = auth.Load(dir)
	if errors.Is(err, trivet.ErrNotFound) && s.data.isNew() {
		s.keys, err = auth.Init(dir, s.member.ClusterID())
	} else if errors.Is(err, trivet.ErrNotFound) { // new ones would open no secret, and nobody would trust them
		err = &trivet.Error{Op: "open keys", Name: dir, Err: err, Hint: "put the folder's backup back"}
	}
	if err == nil && s.keys.CA.Cluster() != s.member.ClusterID() {
		err = fmt.Errorf("keys: %w: they are of cluster %s, the store is of %s", trivet.ErrInvalid, s.keys.CA.Cluster(), s.member.ClusterID())
	}
	return err
}

func (s *Server) openFiles(context.Context) (err error) {
	// Images stop before they take the room that the store needs.
	if s.blobs, err = blob.Open(filepath.Join(s.cfg.Dir, "blobs"), blob.Options{Reserve: 2 * cluster.DefaultReserve}); err != nil {
		return err
	}
	s.logs, err = runlog.Open(filepath.Join(s.cfg.Dir, "logs"))
	return err
}

// assemble wires the doors.
func (s *Server) assemble(context.Context) (err error) {
	s.api, err = api.New(api.Config{
		Fleet: s.fleet, Keys: s.keys, Blobs: s.blobs, Logs: s.logs, Log: s.cfg.Log, Metrics: s.metrics,
		Version: wire.Version{Version: s.cfg.Version, Cluster: s.member.ClusterID(), Head: s.cfg.Name},
		Ready:   s.ready, CheckTemplate: checkTemplate,
	})
	if err != nil {
		return err
	}
	s.netboot, err = netboot.New(netboot.Config{
		Tables: s.fleet.Tables, Head: s.cfg.Name, Keys: s.keys, CA: s.keys.CA.Pin(), Blobs: s.blobs.Handler(),
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
	apiServer := &http.Server{
		Handler: s.api, TLSConfig: s.certificate().TLS(), MaxHeaderBytes: api.MaxHeader, ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout: 2 * time.Minute, ErrorLog: quiet(s.cfg.Log),
	}
	bootServer := s.netboot.HTTPServer()
	g.Go(func() error { return served(apiServer.ServeTLS(s.doors.api, "", "")) })
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
		return errors.Join(shutdown(drain, apiServer), shutdown(drain, bootServer))
	})
	s.cfg.Log.Info("ready", "head", s.cfg.Name, "cluster", s.member.ClusterID(), "api", s.APIURLs(), "boot", s.BootURLs())
	return g.Wait()
}

func (s *Server) controllers() controller.Config {
	return controller.Config{Fleet: s.fleet, Unseal: s.unseal, Logs: s.logs, Log: s.cfg.Log}
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
	s.doors.close()
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
