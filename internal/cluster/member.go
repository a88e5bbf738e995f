// Package cluster runs this head's member of the replicated store: an embedded etcd, used in-process. One member, for one
// head, is a cluster as well.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"

	"github.com/trivet-project/trivet"
)

// Config is how a member is run.
type Config struct {
	Dir    string // the member's data; one member at a time
	Name   string // "head0"
	Logger *slog.Logger
	// Token tells new clusters apart, beside the members' URLs; empty means "trivet".
	Token string
	// URL is where the other members reach this one: an https URL whose requests PeerHandler gets. Empty means that nobody
	// does, for a member that is alone. It counts only while Dir is empty; see SetURL.
	URL string
	// Join are the members of the cluster that this one was added to, by URL, this one's among them; empty means a cluster of
	// its own. It counts only while Dir is empty.
	Join []Peer
	// TLS are the files for calls to other members.
	TLS PeerTLS
	// Retention is how long old revisions stay, for watches that resume; 0 means an hour.
	Retention time.Duration
	// QuotaBytes bounds the store on disk; 0 means 8 GiB.
	QuotaBytes int64
	// Reserve is how many bytes of the file system must be free for writes to be taken; 0 means DefaultReserve, below 0 none.
	Reserve int64
	// Heartbeat is how often a leader says that it is there, and Election how long the others miss that before one of them
	// wants to lead; it takes up to twice as long. All members should have the same. 0 means 50 ms, and six Heartbeats: on one
	// machine with three members and two busy cores, 80 leaders that died were replaced within 0.4 s (half of them) to 0.9 s
	// (all); with 500 ms it took 0.7 to 1.7 s. See BenchmarkWriteGap in internal/store.
	Heartbeat, Election time.Duration
}

// MinHeartbeat and MaxHeartbeat bound what Config.Heartbeat may be with the Election that follows from it.
const (
	MinHeartbeat = 10 * time.Millisecond
	MaxHeartbeat = 5 * time.Second
)

// Member is a running member.
type Member struct {
	etcd    *embed.Etcd
	client  *clientv3.Client
	lock    *os.File
	space   *space
	socket  string // folder of the sockets
	left    bool   // while it started
	fatal   *fatal
	failed  chan error
	closing chan struct{}
	running sync.WaitGroup
	once    sync.Once

	election   time.Duration
	leaderless leaderless
}

// Start runs the member in cfg.Dir, made anew where the folder is empty, and returns when it serves writes or ctx ends.
// Errors: ErrUnavailable, with a hint where an operator can help.
func Start(ctx context.Context, cfg Config) (*Member, error) {
	m, err := Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := m.WaitLeader(ctx); err != nil {
		m.Close()
		return nil, &trivet.Error{Op: "start member", Name: cfg.Name, Err: err}
	}
	return m, nil
}

// Open runs the member as Start does, but does not wait for a quorum. Without one, reads of the local copy work.
func Open(ctx context.Context, cfg Config) (*Member, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Heartbeat = or(cfg.Heartbeat, 50*time.Millisecond)
	cfg.Election = or(cfg.Election, 6*cfg.Heartbeat)
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, explain(cfg, err)
	}
	lock, err := lockDir(cfg.Dir)
	if err != nil {
		return nil, err
	}
	m := &Member{lock: lock, election: cfg.Election, fatal: newFatal(), failed: make(chan error, 1), closing: make(chan struct{})}
	if err := m.open(ctx, cfg); err != nil {
		m.Close()
		return nil, explain(cfg, err)
	}
	m.running.Go(m.waitStopped)
	m.running.Go(func() { m.watchDisk(cfg.Dir, cfg.Logger) })
	return m, nil
}

func (m *Member) open(ctx context.Context, cfg Config) error {
	err := checkStartSpace(cfg.Dir)
	if err != nil {
		return err
	}
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
	m.space = &space{dir: cfg.Dir, reserve: or(cfg.Reserve, DefaultReserve), log: cfg.Logger}
	m.client = v3client.New(m.etcd.Server)
	m.client.KV = spaceKV{m.client.KV, m.space}
	return nil
}

// startEtcd runs etcd in goroutines of its own: a fatal error ends the one that met it, and others may then wait for that
// one for ever. Those, and a start that ctx was too short for, are left to the end of the process.
func (m *Member) startEtcd(ctx context.Context, c *embed.Config) (*embed.Etcd, error) {
	type result struct {
		etcd *embed.Etcd
		err  error
	}
	started := make(chan result, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil { // at some damaged files
				started <- result{nil, fmt.Errorf("%w: panic: %v", errFatal, p)}
			}
		}()
		etcd, err := embed.StartEtcd(c)
		started <- result{etcd, err}
	}()
	select {
	case r := <-started:
		m.left = errors.Is(r.err, errFatal)
		return r.etcd, r.err
	case <-m.fatal.done:
		return nil, m.fatal.Err()
	case <-ctx.Done():
		m.left = true
		return nil, context.Cause(ctx)
	}
}

func (m *Member) config(cfg Config) (*embed.Config, error) {
	listen := "unix://" + filepath.Join(m.socket, "peer") // unused: who serves the member gives its requests to PeerHandler
	peer, err := url.Parse(or(cfg.URL, listen))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", trivet.ErrInvalid, err)
	}
	local, err := url.Parse(listen)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", trivet.ErrInvalid, err)
	}
	c := embed.NewConfig()
	c.Name, c.Dir = cfg.Name, filepath.Join(cfg.Dir, "etcd")
	c.InitialCluster, c.InitialClusterToken = cfg.Name+"="+peer.String(), or(cfg.Token, "trivet")
	if len(cfg.Join) > 0 {
		c.InitialCluster, c.ClusterState = initialCluster(cfg), embed.ClusterStateFlagExisting
	}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{*local}, []url.URL{*peer}
	c.PeerTLSInfo = transport.TLSInfo{CertFile: cfg.TLS.Cert, KeyFile: cfg.TLS.Key, TrustedCAFile: cfg.TLS.CA}
	// No door for clients: the store is used in-process only.
	c.ListenClientUrls, c.AdvertiseClientUrls, c.EnableGRPCGateway = nil, nil, false
	c.AutoCompactionMode, c.AutoCompactionRetention = "periodic", or(cfg.Retention, time.Hour).String()
	c.QuotaBackendBytes = or(cfg.QuotaBytes, 8<<30)
	c.TickMs, c.ElectionMs = uint(cfg.Heartbeat.Milliseconds()), uint(cfg.Election.Milliseconds())
	// Raft keeps these many entries in memory. A start goes through those since the last snapshot: while more than 5000 are
	// left, etcd refuses its own first write and says it again without a pause.
	c.SnapshotCatchUpEntries, c.SnapshotCount = 2000, 2500
	c.MaxRequestBytes = 2 << 20
	c.WarningApplyDuration = 2 * time.Second // watchDisk tells more of what is behind that
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(slogCore{
		log: cfg.Logger.With("part", "etcd"), fatal: m.fatal, closing: m.closing,
		pace: &pace{log: cfg.Logger, every: cfg.Heartbeat, election: cfg.Election},
	}.logger())
	return c, nil
}

// initialCluster lists the members as etcd's flag does. Members are told apart by their URLs; a name is needed for each.
func initialCluster(cfg Config) string {
	var members []string
	for i, p := range cfg.Join {
		name := or(p.Name, fmt.Sprintf("unnamed%d", i))
		if p.URL == cfg.URL {
			name = cfg.Name
		}
		members = append(members, name+"="+p.URL)
	}
	return strings.Join(members, ",")
}

// waitStopped waits for the member's end, and tells why where nobody closed it.
func (m *Member) waitStopped() {
	var err error
	select {
	case <-m.closing:
		return
	case <-m.fatal.done:
		err = m.fatal.Err()
	case err = <-m.etcd.Err():
	case <-m.etcd.Server.StopNotify():
		err = ErrRemoved // etcd stops by itself for nothing else: it has read so in the log, or others told it
	}
	m.failed <- &trivet.Error{Op: "run member", Err: fmt.Errorf("%w: %w", trivet.ErrUnavailable, err), Hint: hint(err)}
}

// Client speaks to the member in-process: its serializable reads and watches work without a leader.
func (m *Member) Client() *clientv3.Client { return m.client }

// ID names the member.
func (m *Member) ID() uint64 { return uint64(m.etcd.Server.MemberID()) }

// ClusterID names the cluster for as long as it lives.
func (m *Member) ClusterID() string {
	return fmt.Sprintf("%016x", uint64(m.etcd.Server.Cluster().ID()))
}

// Failed gives the error that ended the member from within, such as a full disk. Its client may block from then on; whoever
// has a copy can still read that. Nothing can be written until the head is started again.
func (m *Member) Failed() <-chan error { return m.failed }

// Close stops the member. A leader hands over first, so that the others need not miss it. Without a leader it stops at once:
// an orderly stop would wait for one. A member that failed is left as it is, since it may wait for itself; its folder is free
// again when the process ends.
func (m *Member) Close() {
	m.once.Do(func() {
		close(m.closing)
		m.running.Wait()
		if m.fatal.Err() != nil || m.left {
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
		_ = m.lock.Close() // the lock goes with it
	})
}

// maxSocketPath is what fits into a sockaddr_un, less the sockets' own names.
const maxSocketPath = 96

// socketDir makes an empty folder for the member's sockets: in the data folder, or elsewhere where its path is too long.
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

func or[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// explain makes an error of starting one that tells an operator what to do.
func explain(cfg Config, err error) error {
	if !errors.Is(err, trivet.ErrInvalid) {
		err = fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
	}
	return &trivet.Error{Op: "start member", Name: cfg.Name, Err: err, Hint: hint(err)}
}

func hint(err error) string {
	switch text := err.Error(); {
	case strings.Contains(text, "no space left"):
		return "the disk is full; make room, then start the head again"
	case strings.Contains(text, "input/output error"):
		return "the disk fails: see the system's log (dmesg); when it is well, or replaced with its files copied, start the head again"
	case strings.Contains(text, "address already in use"):
		return "another program has this address"
	case strings.Contains(text, "crc mismatch"), strings.Contains(text, "invalid database"), strings.Contains(text, "gave up: panic"):
		return "files of the store are damaged; put a backup of the data folder in its place"
	}
	return ""
}
