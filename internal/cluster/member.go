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
	// Keep is how long old revisions stay, for watches that resume; 0 means an hour.
	Keep time.Duration
	// QuotaBytes bounds the store on disk; 0 means 8 GiB.
	QuotaBytes int64
	// Heartbeat and Election are raft's times; 0 means 50 and 500 ms.
	Heartbeat, Election time.Duration
}

// Member is a running member.
type Member struct {
	etcd   *embed.Etcd
	client *clientv3.Client
	lock   *os.File
	socket string // folder of the sockets
	once   sync.Once
}

// Start runs the member in cfg.Dir, made anew where the folder is empty, and returns when it serves or ctx ends.
func Start(ctx context.Context, cfg Config) (*Member, error) {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("start member: %w", err)
	}
	lock, err := lockDir(cfg.Dir)
	if err != nil {
		return nil, err
	}
	m := &Member{lock: lock}
	if err := m.start(ctx, cfg); err != nil {
		m.Close()
		return nil, &trivet.Error{Op: "start member", Name: cfg.Name, Err: explain(err)}
	}
	return m, nil
}

func (m *Member) start(ctx context.Context, cfg Config) error {
	var err error
	if m.socket, err = socketDir(cfg.Dir); err != nil {
		return err
	}
	if m.etcd, err = embed.StartEtcd(m.config(cfg)); err != nil {
		return err
	}
	select {
	case <-m.etcd.Server.ReadyNotify():
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", trivet.ErrUnavailable, ctx.Err())
	case err := <-m.etcd.Err():
		return err
	}
	m.client = v3client.New(m.etcd.Server)
	return nil
}

func (m *Member) config(cfg Config) *embed.Config {
	peer := url.URL{Scheme: "unix", Path: filepath.Join(m.socket, "peer")}
	client := url.URL{Scheme: "unix", Path: filepath.Join(m.socket, "client")}
	c := embed.NewConfig()
	c.Name, c.Dir = cfg.Name, filepath.Join(cfg.Dir, "etcd")
	// Sockets in a folder of our own: nothing is open to the world, nor to other users of this machine.
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	c.InitialCluster = cfg.Name + "=" + peer.String()
	c.InitialClusterToken = "trivet"
	c.EnableGRPCGateway = false
	c.AutoCompactionMode, c.AutoCompactionRetention = "periodic", or(cfg.Keep, time.Hour).String()
	c.QuotaBackendBytes = or(cfg.QuotaBytes, 8<<30)
	c.TickMs = uint(or(cfg.Heartbeat, 50*time.Millisecond).Milliseconds())
	c.ElectionMs = uint(or(cfg.Election, 500*time.Millisecond).Milliseconds())
	c.SnapshotCatchUpEntries, c.SnapshotCount = 2000, 5000 // raft keeps these many entries in memory
	c.MaxRequestBytes = 2 << 20
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zapTo(cfg.Logger))
	return c
}

// Client speaks to the member in-process: its serializable reads and watches work without a leader.
func (m *Member) Client() *clientv3.Client { return m.client }

// ID names the member, ClusterID the cluster.
func (m *Member) ID() uint64 { return uint64(m.etcd.Server.MemberID()) }

// ClusterID names the cluster for as long as it lives.
func (m *Member) ClusterID() string {
	return fmt.Sprintf("%016x", uint64(m.etcd.Server.Cluster().ID()))
}

// HasLeader says whether writes can be served.
func (m *Member) HasLeader() bool { return m.etcd.Server.Leader() != 0 }

// Failed tells an error that ended the member from within.
func (m *Member) Failed() <-chan error { return m.etcd.Err() }

// Close stops the member. Without a leader it stops at once: an orderly stop would wait for one.
func (m *Member) Close() {
	m.once.Do(func() {
		if m.client != nil {
			_ = m.client.Close()
		}
		if m.etcd != nil {
			if !m.HasLeader() {
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

// explain tells an operator what to do about what etcd says.
func explain(err error) error {
	if strings.Contains(err.Error(), "no space left") {
		return fmt.Errorf("%w: the disk is full: %w", trivet.ErrUnavailable, err)
	}
	return err
}
