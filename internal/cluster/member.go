// Package cluster runs this head's member of the replicated store: an embedded etcd, used in-process. A single member
// is a cluster too.
package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/pkg/v3/featuregate"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/wait"
)

// Config configures a member.
type Config struct {
	Dir    string // the member's data; used by one member at a time
	Name   string // "head0"
	Logger *slog.Logger
	// Token is part of a new cluster's ID, with the members' URLs; empty means "trivet".
	Token string
	// URL is the https URL at which the other members reach this one, served by PeerHandler. Empty for a single
	// member. It is used only if Dir is empty; see SetURL.
	URL string
	// FromURL makes calls to other members come from the address in URL, an IPv4 address of this host other than
	// loopback, also if Dir is not empty. Without it the kernel chooses the address.
	FromURL bool
	// Join lists the members of the cluster that this one was added to, including this one; empty means a new
	// cluster. It is used only if Dir is empty.
	Join []Peer
	// TLS names the files for calls to other members.
	TLS PeerTLS
	// Retention is how long old revisions are kept, for watches that resume; 0 means an hour.
	Retention time.Duration
	// QuotaBytes is how many bytes of the store may be in use; 0 means DefaultQuota. See Usage.
	QuotaBytes int64
	// Reserve is how many bytes of the file system writes leave for the member; 0 means DefaultReserve, negative means
	// none.
	Reserve int64
	// Heartbeat is the interval of the leader's heartbeats. Election is how long the others miss them before one of
	// them becomes a candidate; it may take up to twice as long. All members should have the same values. 0 means 50
	// ms, and six Heartbeats: on one machine with three members and two busy cores, 80 killed leaders were replaced
	// within 0.4 s (median) to 0.9 s (maximum); with 500 ms it took 0.7 to 1.7 s. See BenchmarkWriteGap in
	// internal/store.
	Heartbeat, Election time.Duration
	// Jump is how far the revision of a restored store is above that of the snapshot: see Restore.
	Jump int64
	// Snapshots is after how many entries of the log the member writes a snapshot; 0 means 2500. See BeginLog.
	Snapshots uint64

	alone bool // it forms a cluster by itself, whichever members its data names
}

// MinHeartbeat and MaxHeartbeat bound Config.Heartbeat if Config.Election is derived from it.
const (
	MinHeartbeat = 10 * time.Millisecond
	MaxHeartbeat = 5 * time.Second
)

// maxLearners is how many members may be learners: a standby, and one that joins.
const maxLearners = 2

// startDefragment is how many MiB the store's file must become smaller by for it to be defragmented at the start. A
// witness is defragmented only then.
const startDefragment = 1024

// Member is a running member.
type Member struct {
	etcd     *embed.Etcd
	client   *clientv3.Client
	lock     *os.File
	space    *space
	incoming *incoming
	quota    int64
	socket   string // directory of the sockets
	aborted  bool   // the start was given up while etcd goroutines ran
	fatal    *fatal
	failed   chan error
	closing  chan struct{}
	running  sync.WaitGroup
	once     sync.Once

	log           *slog.Logger
	heartbeat     time.Duration
	election      time.Duration
	leaderless    leaderless
	succession    succession
	defragmenting atomic.Bool
	acknowledged  atomic.Uint64
	current       atomic.Pointer[time.Time]
}

// Start runs the member in cfg.Dir, which it creates if the directory is empty, and returns when it serves writes or
// ctx ends. Errors: ErrUnavailable, with a hint if an operator can help.
func Start(ctx context.Context, cfg Config) (*Member, error) {
	m, err := Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := m.waitReadable(ctx, m.read); err != nil {
		m.Close()
		return nil, &trivet.Error{Op: "start member", Name: cfg.Name, Err: err}
	}
	return m, nil
}

// waitReadable waits for a leader, and until a read is answered: etcd names the leader of a new term before it ends the
// reads of the former one, and a read that begins in between fails.
func (m *Member) waitReadable(ctx context.Context, read func(context.Context) error) error {
	for {
		if err := m.WaitLeader(ctx); err != nil {
			return err
		}
		if err := read(ctx); !errors.Is(err, rpctypes.ErrLeaderChanged) {
			return err
		}
	}
}

func (m *Member) read(ctx context.Context) error {
	_, err := m.client.Get(ctx, "/", clientv3.WithCountOnly())
	return err
}

// Open runs the member as Start does, without waiting for a quorum. Reads of the local copy need none.
func Open(ctx context.Context, cfg Config) (*Member, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Heartbeat = cmp.Or(cfg.Heartbeat, 50*time.Millisecond)
	cfg.Election = cmp.Or(cfg.Election, 6*cfg.Heartbeat)
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, explain(cfg, err)
	}
	lock, err := lockDir(cfg.Dir)
	if err != nil {
		return nil, err
	}
	m := &Member{lock: lock, quota: cmp.Or(cfg.QuotaBytes, DefaultQuota), log: cfg.Logger,
		heartbeat: cfg.Heartbeat, election: cfg.Election,
		fatal: newFatal(), failed: make(chan error, 1), closing: make(chan struct{})}
	if err := m.open(ctx, cfg); err != nil {
		m.Close()
		return nil, explain(cfg, err)
	}
	m.running.Go(m.waitStopped)
	m.running.Go(func() { m.watchDisk(cfg.Dir, cfg.Logger) })
	m.running.Go(m.watchData)
	m.running.Go(func() { m.watchCurrent(cfg.Dir) })
	m.running.Go(m.watchLeader)
	m.space.reserve.keep()
	m.running.Go(func() { m.space.reserve.watch(m.closing) })
	return m, nil
}

func (m *Member) open(ctx context.Context, cfg Config) error {
	err := checkStartSpace(cfg.Dir)
	if err != nil {
		return err
	}
	m.space = &space{dir: cfg.Dir, reserve: newReserve(cfg.Dir, cfg.Reserve), log: cfg.Logger}
	m.incoming = &incoming{space: m.space}
	if err := checkReadable(ctx, cfg.Dir); err != nil {
		return err
	}
	_ = os.Remove(filepath.Join(cfg.Dir, reserveName)) // of the last start
	if m.socket, err = socketDir(cfg.Dir); err != nil {
		return err
	}
	c, err := m.config(cfg)
	if err != nil {
		return err
	}
	if m.etcd, err = m.startEtcd(ctx, c); err != nil {
		return err
	}
	m.client = v3client.New(m.etcd.Server)
	m.client.KV = spaceKV{pageKV{m.client.KV, m.etcd.Server}, m.space}
	return nil
}

// startEtcd runs etcd in separate goroutines: a fatal error ends the one that logged it, and others may then wait for
// that one forever. Those, and a start that did not end before ctx, are abandoned.
func (m *Member) startEtcd(ctx context.Context, c *embed.Config) (*embed.Etcd, error) {
	type result struct {
		etcd *embed.Etcd
		err  error
	}
	started := make(chan result, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil { // etcd panics on some damaged files
				started <- result{nil, fmt.Errorf("%w: panic: %v", errFatal, p)}
			}
		}()
		etcd, err := startKnown(ctx, c)
		started <- result{etcd, err}
	}()
	select {
	case r := <-started:
		m.aborted = errors.Is(r.err, errFatal)
		return r.etcd, r.err
	case <-m.fatal.done:
		return nil, m.fatal.Err()
	case <-ctx.Done():
		m.aborted = true
		return nil, context.Cause(ctx)
	}
}

// joinTries and joinRetry bound how long a member that joins waits until the others know it.
const (
	joinTries = 100
	joinRetry = 100 * time.Millisecond
)

// startKnown starts etcd. A member that joins compares the members that it was given with those that another one knows.
// Where that one has not applied yet that this one was added, etcd fails, and is started again.
func startKnown(ctx context.Context, c *embed.Config) (*embed.Etcd, error) {
	for try := 1; ; try++ {
		etcd, err := embed.StartEtcd(c)
		if err == nil || try == joinTries || !strings.Contains(err.Error(), "error validating peerURLs") {
			return etcd, err
		}
		if wait.Sleep(ctx, joinRetry) != nil {
			return nil, err
		}
	}
}

func (m *Member) config(cfg Config) (*embed.Config, error) {
	// Unused: requests are served by PeerHandler. etcd takes the path from the host of the URL. Where that is empty, it
	// listens on an abstract socket, which other users can reach, and cannot close it in a read-only directory.
	socket := filepath.Join(m.socket, "peer")
	local := &url.URL{Scheme: "unix", Host: socket}
	peer, err := url.Parse(cmp.Or(cfg.URL, "unix://"+socket))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", trivet.ErrInvalid, err)
	}
	c := embed.NewConfig()
	c.Name, c.Dir = cfg.Name, filepath.Join(cfg.Dir, "etcd")
	c.InitialCluster, c.InitialClusterToken = cfg.Name+"="+peer.String(), cmp.Or(cfg.Token, "trivet")
	if len(cfg.Join) > 0 {
		c.InitialCluster, c.ClusterState = initialCluster(cfg), embed.ClusterStateFlagExisting
	}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{*local}, []url.URL{*peer}
	c.PeerTLSInfo = transport.TLSInfo{CertFile: cfg.TLS.Cert, KeyFile: cfg.TLS.Key, TrustedCAFile: cfg.TLS.CA}
	// No client listener: the store is used in-process only.
	c.ListenClientUrls, c.AdvertiseClientUrls, c.EnableGRPCGateway = nil, nil, false
	c.AutoCompactionMode, c.AutoCompactionRetention = "periodic", cmp.Or(cfg.Retention, time.Hour).String()
	c.QuotaBackendBytes = -1 // none: see Usage
	c.BootstrapDefragThresholdMegabytes = startDefragment
	c.TickMs, c.ElectionMs = uint(cfg.Heartbeat.Milliseconds()), uint(cfg.Election.Milliseconds())
	// Raft keeps this many entries in memory. A start replays those since the last snapshot: while more than 5000 are
	// left, etcd refuses its own first write and retries it without delay.
	c.SnapshotCatchUpEntries, c.SnapshotCount = 2000, cmp.Or(cfg.Snapshots, 2500)
	c.MaxLearners = maxLearners
	// A member compares its data with that of the others when it starts, and the leader that of all after compactions.
	c.ForceNewCluster = cfg.alone
	features := "InitialCorruptCheck=true,CompactHashCheck=true"
	if cfg.FromURL {
		features += ",SetMemberLocalAddr=true"
	}
	if err := c.ServerFeatureGate.(featuregate.MutableFeatureGate).Set(features); err != nil {
		return nil, fmt.Errorf("%w: %w", trivet.ErrInvalid, err)
	}
	c.MaxRequestBytes = 2 << 20
	c.WarningApplyDuration = 2 * time.Second // watchDisk reports slow disks
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(slogCore{
		log: cfg.Logger.With("part", "etcd"), fatal: m.fatal, closing: m.closing,
		heartbeats: &heartbeatMonitor{log: cfg.Logger, interval: cfg.Heartbeat, election: cfg.Election},
	}.logger())
	return c, nil
}

// initialCluster lists the members as etcd's flag does. URLs identify members; each also needs a name.
func initialCluster(cfg Config) string {
	var members []string
	for i, p := range cfg.Join {
		name := cmp.Or(p.Name, fmt.Sprintf("unnamed%d", i))
		if p.URL == cfg.URL {
			name = cfg.Name
		}
		members = append(members, name+"="+p.URL)
	}
	return strings.Join(members, ",")
}

// waitStopped waits until the member stops, and reports the error unless it was closed.
func (m *Member) waitStopped() {
	var err error
	select {
	case <-m.closing:
		return
	case <-m.fatal.done:
		err = m.fatal.Err()
	case err = <-m.etcd.Err():
	case <-m.etcd.Server.StopNotify():
		err = ErrRemoved // the only reason for etcd to stop by itself
	}
	m.failed <- &trivet.Error{Op: "run member", Err: fmt.Errorf("%w: %w", trivet.ErrUnavailable, err), Hint: hint(err)}
}

// Client returns an in-process client. Its serializable reads and watches work without a leader.
func (m *Member) Client() *clientv3.Client { return m.client }

// ID returns the member's ID.
func (m *Member) ID() uint64 { return uint64(m.etcd.Server.MemberID()) }

// ClusterID returns the cluster's ID, which never changes.
func (m *Member) ClusterID() string {
	return fmt.Sprintf("%016x", uint64(m.etcd.Server.Cluster().ID()))
}

// Failed returns a channel that receives the error that stopped the member, such as a full disk. Its client may block
// from then on. Local copies can still be read; writes need a restart of the head.
func (m *Member) Failed() <-chan error { return m.failed }

// Err returns the error that stopped the member; nil: it runs.
func (m *Member) Err() error { return m.fatal.Err() }

// Close stops the member. A leader transfers its leadership first. Without a leader, the member stops at once: a
// graceful stop would wait for one. A member that failed is abandoned, since stopping it could block; its directory
// stays locked until the process ends.
func (m *Member) Close() {
	m.once.Do(func() {
		close(m.closing)
		m.running.Wait()
		if m.fatal.Err() != nil || m.aborted {
			return
		}
		if m.client != nil {
			_ = m.client.Close()
		}
		if m.etcd != nil {
			if !m.HasLeader() || !m.transferLeadership() {
				m.etcd.Server.HardStop()
			}
			m.etcd.Close()
		}
		if m.socket != "" {
			_ = os.RemoveAll(m.socket)
		}
		_ = m.lock.Close() // releases the lock
	})
}

// maxSocketPath is the maximum length of a sockaddr_un path, less the sockets' own names.
const maxSocketPath = 96

// socketDir creates an empty directory for the member's sockets: in the data directory, or a temporary one if that
// path is too long.
func socketDir(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if path := filepath.Join(abs, "run"); len(path) <= maxSocketPath {
		return path, errors.Join(os.RemoveAll(path), os.Mkdir(path, 0o700))
	}
	return os.MkdirTemp("", "trivet-")
}

// explain wraps an error of the start with a hint for the operator.
func explain(cfg Config, err error) error {
	if !errors.Is(err, trivet.ErrInvalid) {
		err = fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
	}
	return &trivet.Error{Op: "start member", Name: cfg.Name, Err: err, Hint: hint(err)}
}

func hint(err error) string {
	switch text := err.Error(); {
	case strings.Contains(text, "no space left"):
		return "the disk is full; free some space, then restart the head"
	case strings.Contains(text, "address already in use"):
		return "another program uses this address"
	case strings.Contains(text, "crc mismatch"), strings.Contains(text, "invalid database"),
		strings.Contains(text, errFatal.Error()+": panic"):
		return "the store's files are damaged; " + HintReplace
	case strings.Contains(text, "found data inconsistency with peers"), errors.Is(err, errDamaged):
		return "the store's files differ from those of the other heads; " + HintReplace
	case strings.Contains(text, "is out of range [lastIndex"):
		return "the store's files are older than what this head has acknowledged; " + HintReplace
	}
	return ""
}
