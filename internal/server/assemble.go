package server

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/addressing"
	"github.com/trivet-project/trivet/internal/api"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/blob"
	"github.com/trivet-project/trivet/internal/bmc"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/console"
	"github.com/trivet-project/trivet/internal/controller/deadline"
	"github.com/trivet-project/trivet/internal/faultinject"
	"github.com/trivet-project/trivet/internal/fleet"
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
	"github.com/trivet-project/trivet/internal/workflow"
)

func (s *Server) openStore(ctx context.Context) error {
	name := s.local.Name()
	s.store = store.New(s.member.Client(), store.Options{Head: name, Cipher: s.local.Keys().Values(),
		Term: s.member.Term, Admit: s.member.Admit, Logger: s.cfg.Log, Metrics: s.metrics})
	s.local.SetRefused(s.store.Refused)
	tables := state.New(s.store)
	s.fleet, s.clock = fleet.New(tables, name), presence.NewClock(s.member.HasLeader)
	s.fleet.Metrics, s.fleet.Log = fleet.NewMetrics(s.metrics), s.cfg.Log
	s.bmcErrors = bmc.NewMetrics(s.metrics)
	s.learnt = state.NewLearnt(tables, name)
	s.fleet.Learnt = s.learnt.Book
	s.metrics.MustRegister(state.NewCollector(tables), s.learnt, buildInfo(s.cfg.Version))
	tracker := presence.New(s.clock, s.fleet.AgentTimeout)
	s.fleet.AgentUp, s.fleet.AgentHeard, s.fleet.AgentSilence = tracker.Up, tracker.Heard, tracker.Silence
	s.records = membership.NewRecords(tables, name)
	s.heads = state.NewView(s.store, tables.Heads, addressesOf)
	s.monitor = peer.NewMonitor(s.local.Client(), s.records.Others, s.cfg.Log)
	s.exchange = &presence.Exchange{Tracker: tracker, Client: s.local.Client(),
		Peers: func() map[string]string { return tables.PeerURLs(name) }}
	s.registration = &membership.Registration{Local: s.local, Records: s.records, Member: s.member,
		Writable: func() error { return writable(s.member) }}
	s.keeper = maintenance.New(maintenance.Config{Head: name, Member: s.member, Tables: tables,
		Others: s.records.Others, Statuses: s.monitor.Statuses, Log: s.cfg.Log.With("part", "store")})
	return s.store.Start(ctx)
}

// checkSealingKey refuses to run with another sealing key than that of the secrets in the store.
func (s *Server) checkSealingKey(context.Context) error {
	for secret := range s.fleet.Secrets.AllShared() {
		for _, text := range secret.Spec.Data {
			if id, missing := s.local.Keys().Sealer.MissingKey(text); missing {
				return &trivet.Error{Op: "open", Kind: "Secret", Name: secret.ShortName(),
					Err: fmt.Errorf("%w: it is sealed with key %s, which is not in keys/seal.keys", trivet.ErrInvalid, id),
					Hint: "restore the file from a backup of the data directory, or let this head join again: " +
						"--rejoin --join URL --token TOKEN"}
			}
		}
	}
	return nil
}

func (s *Server) openFiles(context.Context) (err error) {
	// Blobs and logs stop growing before they use the space that the store needs.
	const reserve = 2 * cluster.DefaultReserve
	s.faults = newDiskFaults(s.cfg.Log, s.metrics)
	if s.blobStore, err = blob.Open(s.cfg.path("blobs"),
		blob.Options{Reserve: reserve, Quota: int64(s.cfg.BlobQuota),
			Damaged:  func(d blob.Digest, err error) { s.blobs.Damaged(d, err) },
			Repaired: func(d blob.Digest) { s.blobs.Repaired(d) },
			Fault:    func(err error) { s.faults.note("blobs", err) }}); err != nil {
		return err
	}
	s.metrics.MustRegister(blobGauges(s.blobStore, s.cfg.BlobQuota))
	s.blobs = replica.NewBlobs(replica.BlobConfig{Self: s.local.Name(), Store: s.blobStore, Tables: s.fleet.Tables,
		Root: s.local.Root(), Incarnation: s.local.Incarnation, Cluster: s.local.Root().Cluster(),
		Unseal: unsealer(s.local.Keys()),
		Cert:   s.local.Cert(), Log: s.cfg.Log.With("part", "blobs"), Metrics: s.metrics})
	s.logs, err = runlog.Open(s.cfg.path("logs"), reserve, func(err error) { s.faults.note("logs", err) })
	return err
}

// assemble wires the servers of a full head.
func (s *Server) assemble(context.Context) (err error) {
	s.runLogs = &replica.Logs{Self: s.local.Name(), Store: s.logs, Tables: s.fleet.Tables, Client: s.local.Client()}
	s.consoles = console.New(console.Config{Self: s.local.Name(), Tables: s.fleet.Tables, Client: s.local.Client(),
		Unseal: unsealer(s.local.Keys()), Log: s.cfg.Log.With("part", "console"), Metrics: s.bmcErrors})
	view := &membership.View{Local: s.local, Records: s.records, Statuses: s.monitor.Statuses}
	s.openHealth(view)
	s.backups = s.backupSource()
	s.api = api.New(api.Config{
		Fleet: s.fleet, Heads: s.records, Presence: s.exchange.Tracker,
		Keys: s.local.Keys(), Blobs: s.blobStore, Copies: s.blobs,
		Logs: s.runLogs, Consoles: s.consoles, Backups: s.backups, Power: s.readPower, Log: s.cfg.Log,
		Metrics: s.metrics,
		Version: trivet.Version{Version: s.cfg.Version, Cluster: s.local.Root().Cluster(), Head: s.local.Name()},
		Ready:   s.ready, CheckTemplate: checkTemplate, Cluster: view.Cluster, Status: s.health.Report,
	})
	s.router.set(&s.router.api, s.api)
	s.router.setSender(s.verifySender)
	s.router.set(&s.router.peers, s.peerServer())
	s.leases = addressing.New(addressing.Config{Tables: s.fleet.Tables, Shared: s.cfg.vip().Addr(),
		Quorum: s.member.HasLeader,
		Logger: s.cfg.Log.With("part", "addressing"), Registry: s.metrics})
	s.fleet.Propose, s.fleet.Predict, s.fleet.Stated = s.leases.Propose, s.leases.Predict, s.leases.Stated
	s.netboot, err = netboot.New(netboot.Config{
		Tables: s.fleet.Tables, Leases: s.leases, Head: s.local.Name(), Live: s.monitor.Live,
		Quorum: s.member.HasLeader, VIP: s.cfg.vip(),
		Keys: s.local.Keys(), CA: s.local.Root().Trust(), Blobs: s.blobs.BootHandler(),
		Port: portOf(s.listeners.boot.Addr()), IPXEDir: s.cfg.IPXEDir,
		TLS:         s.local.Keys().BootTLS(s.bootNames),
		Handshakes:  newHandshakes(cmp.Or(s.cfg.PerAddress, DefaultPerAddress)),
		StepReached: s.fleet.ReachBootStep, PhoneHome: s.fleet.PhoneHome, ForeignServer: s.fleet.ReportForeignServer,
		Logger: s.cfg.Log.With("part", "netboot"), Registry: s.metrics,
	})
	if err != nil {
		return err
	}
	probe := &probeHandler{next: s.netboot,
		response: foundCluster{s.local.Root().Cluster(), s.local.Name(), s.APIURLs()}}
	return s.listeners.listenBoot(&s.cfg, s.limits.tftp, s.netboot.OpenTFTP, probe, s.metrics)
}

// backupSource returns the source of the backups of this head.
func (s *Server) backupSource() *recovery.Source {
	return recovery.NewSource(recovery.SourceConfig{Dir: s.cfg.Dir, Member: s.member, Tables: s.fleet.Tables,
		Keys: s.local.Keys(), Version: s.cfg.Version,
		Head: func() recovery.HeadConfig {
			head := recovery.HeadConfig{Name: s.local.Name(), API: s.APIURLs(), Boot: s.BootURLs(), VIP: s.cfg.VIP}
			if s.cfg.Heartbeat != 0 {
				head.Heartbeat = s.cfg.Heartbeat.String()
			}
			if s.cfg.StoreQuota != 0 {
				head.StoreQuota = s.cfg.StoreQuota.String()
			}
			return head
		}})
}

// bootNames returns the names in the certificate of the boot port: machines load from whichever address of this host
// they have reached by DHCP.
func (s *Server) bootNames() []string {
	names := s.cfg.certNames(s.hosts)
	nets, err := net.InterfaceAddrs()
	if err != nil {
		return names
	}
	return append(names, s.cfg.reachable(nets)...)
}

// peerServer returns the server of the endpoints for other heads.
func (s *Server) peerServer() http.Handler {
	p := peer.NewServer(peer.Config{Root: s.local.Root(), Info: s.local.Info, Log: s.cfg.Log,
		Incarnation: s.local.Incarnation, Fence: s.local.Fence,
		Membership: &membership.Verifier{Records: s.records, Members: s.member}})
	s.membershipServer(s.records).Register(p)
	s.exchange.Register(p)
	deadline.Register(p, s.deadlines.Load)
	s.blobs.Register(p)
	s.runLogs.Register(p)
	s.consoles.Register(p)
	s.health.Register(p)
	return p
}

// verifySender verifies the sender of a raft message: it is a member, which was not removed, and the message is in its
// name.
func (s *Server) verifySender(p auth.Peer, r *http.Request) error {
	if s.records != nil && s.records.Removed(p.Name) {
		return fmt.Errorf("%w: %s was removed from this cluster", trivet.ErrUnauthenticated, p.Name)
	}
	return s.member.VerifySender(r, p.Name)
}

func (s *Server) membershipServer(records *membership.Records) *membership.Server {
	cfg := membership.ServerConfig{
		Info: s.local.Info, Members: s.member, Records: records, Keys: s.local.Keys(), Log: s.cfg.Log,
		Incarnation: s.local.Incarnation}
	if records != nil {
		cfg.Programs, cfg.Well = s.openProgram, s.isWell
	}
	if s.monitor != nil {
		cfg.Acknowledged = s.monitor.Acknowledged
	}
	return membership.NewServer(cfg)
}

// assembleWitness wires what a witness serves besides the store's members: pings, and its health.
func (s *Server) assembleWitness() error {
	if len(s.cfg.DHCPInterfaces) > 0 || s.cfg.DHCPAddress != "" {
		s.cfg.Log.Warn("a witness serves no DHCP; ignoring --dhcp and --dhcp-listen")
	}
	p := peer.NewServer(peer.Config{Root: s.local.Root(), Info: s.local.Info, Log: s.cfg.Log,
		Incarnation: s.local.Incarnation, Fence: s.local.Fence,
		Membership: &membership.WitnessVerifier{Members: s.member}})
	s.membershipServer(nil).Register(p)
	s.router.set(&s.router.peers, p)
	s.router.set(&s.router.api, healthHandler(s.ready))
	if faultinject.WitnessForges {
		go s.forge(context.Background())
	}
	return nil
}

func checkTemplate(t *trivet.Template) error { return workflow.Check(t) }

func unsealer(keys *auth.Keys) func(secret *trivet.Secret, key string) (string, error) {
	return func(secret *trivet.Secret, key string) (string, error) {
		value, err := keys.Sealer.Open(auth.FieldRef{Kind: "Secret", Name: secret.FullName(), Field: key},
			secret.Spec.Data[key])
		if err != nil {
			return "", err
		}
		return value.Reveal(), nil
	}
}

// healthHandler serves the health of a witness.
func healthHandler(ready func(context.Context) error) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := ready(r.Context()); err != nil {
			refuse(w, err)
			return
		}
		_, _ = w.Write([]byte("ready\n"))
	})
	return mux
}
