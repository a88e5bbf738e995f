package membership

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/peer"
)

// Config is how this head becomes a member.
type Config struct {
	// Dir is the data directory.
	Dir string
	// Name is the name of a cluster's first head; empty: DefaultName.
	Name    string
	Version string
	// Join is API URLs of heads whose cluster this head joins at its first start, by the token in JoinToken; nil: a
	// new cluster. JoinToken is a secret.
	Join      []string
	JoinToken string
	// Rejoin moves data of a removed head aside.
	Rejoin bool
	// FindCluster returns an error where another cluster serves the networks of this head. It is called before a new
	// cluster is created.
	FindCluster func(context.Context) error
	Log         *slog.Logger
}

// DefaultName is the name of a cluster's first head.
const DefaultName = "head0"

// Addresses is where this head is reached.
type Addresses struct {
	Peer  string       // URL for other heads, one of API
	API   []string     // https://host:port
	Boot  []string     // http://host:port
	DHCP  []netip.Addr // that it serves DHCP from
	Names []string     // hosts for the certificate of the API's port
}

// Local is the identity of this head: its data directory, its keys and certificates, and its member of the store.
type Local struct {
	cfg  Config
	addr Addresses
	// joining: this start joins a cluster, by token. unusedToken: a token was passed to a head that is a member
	// already.
	joining, unusedToken bool
	token                Token
	// learner: another member reports that this one is a learner.
	learner bool
	// unverified: no other member responded to verify the membership of this head.
	unverified bool
	keys       *auth.Keys // nil for a witness
	root       atomic.Pointer[auth.Root]
	certs      certificates
	client     *peer.Client
	fenced     chan struct{} // closed once the data file has Fenced
	started    time.Time
	program    atomic.Pointer[trivet.HeadProgram] // what a witness reports of its program
	member     atomic.Pointer[cluster.Member]     // nil until it runs
	refused    atomic.Pointer[func() int]         // values that its copy of the store refuses; nil on a witness

	mu   sync.Mutex
	data dataFile // guarded by mu once the head runs
}

// Open opens the data directory and decides whether this start joins a cluster.
func Open(cfg Config) (*Local, error) {
	data, err := openDir(cfg.Dir, cfg.Version)
	if err != nil {
		return nil, err
	}
	l := &Local{cfg: cfg, data: data, fenced: make(chan struct{}), started: time.Now().UTC().Truncate(time.Second)}
	if l.data.Fenced != "" && !cfg.Rejoin {
		return nil, l.ErrFenced()
	}
	l.certs.dir = cfg.Dir
	l.client = peer.NewClient(l.certs.current, l.Root, l.Info)
	l.client.CallFrom(l.source)
	l.client.SetIncarnation(l.Incarnation)
	if err := l.checkName(); err != nil {
		return nil, err
	}
	return l, l.planJoin()
}

// checkName checks the configured name against that in the data directory.
func (l *Local) checkName() error {
	name := cmp.Or(l.cfg.Name, l.data.Name, DefaultName)
	if l.data.Former != "" && name == l.data.Former { // a recovery has named it
		name = l.data.Name
	}
	switch {
	case !l.data.exists() && len(l.cfg.Join) > 0 && l.cfg.Name != "":
		return &trivet.FieldError{Field: "--name", Problem: "cannot be used with --join: the cluster names its heads"}
	case l.data.exists() && name != l.data.Name:
		return &trivet.Error{Op: "open data directory", Name: l.cfg.Dir,
			Hint: "omit --name, or pass another directory by --data-dir",
			Err:  fmt.Errorf("%w: it is of head %s, not of %s", trivet.ErrConflict, l.data.Name, name)}
	}
	l.cfg.Name = name
	return trivet.ValidateName(name)
}

// Establish makes this head a member: by its data, by joining, or as the first head of a new cluster. The API's port
// at addr must be served from before on. Its errors are final for this start.
func (l *Local) Establish(ctx context.Context, addr Addresses) error {
	l.addr = addr
	for _, step := range []func(context.Context) error{l.identify, l.certify, l.verify, l.logUnusedToken,
		l.updateKeys, l.restartFirstStart} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (l *Local) identify(ctx context.Context) error {
	step := l.loadKeys
	switch {
	case l.joining:
		step = l.join
	case !l.data.exists():
		step = l.create
	}
	if err := step(ctx); err != nil {
		return err
	}
	if l.keys != nil {
		l.root.Store(&l.keys.CA.Root)
	}
	return l.saveData()
}

// loadKeys reads the cluster's keys. A witness has only the certificate of the CA.
func (l *Local) loadKeys(context.Context) (err error) {
	dir := l.path("keys")
	if l.data.witness() {
		var root *auth.Root
		root, err = readRoot(dir)
		l.root.Store(root)
	} else {
		l.keys, err = auth.Load(dir)
	}
	if errors.Is(err, trivet.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		err = &trivet.Error{Op: "open keys", Name: dir, Err: err, Hint: "restore a backup of the directory"}
	}
	return err
}

func readRoot(dir string) (*auth.Root, error) {
	text, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err != nil {
		return nil, err
	}
	root, err := auth.ParseRoot(text)
	if err != nil {
		return nil, fmt.Errorf("load keys from %s: %w", dir, err)
	}
	return root, nil
}

// create creates a new cluster, unless there is another one. An interrupted start may have created the keys.
func (l *Local) create(ctx context.Context) (err error) {
	if l.cfg.FindCluster != nil {
		if err := l.cfg.FindCluster(ctx); err != nil {
			return err
		}
	}
	if l.keys, err = auth.Load(l.path("keys")); errors.Is(err, trivet.ErrNotFound) {
		var id [8]byte
		rand.Read(id[:])
		l.keys, err = auth.Init(l.path("keys"), hex.EncodeToString(id[:]))
	}
	l.data = dataFile{Format: dataFormat, Name: l.cfg.Name, Role: trivet.RoleVoter}
	return err
}

func (l *Local) path(name string) string { return filepath.Join(l.cfg.Dir, name) }

// saveData writes the data file, if it has changed.
func (l *Local) saveData() error { return l.data.write(l.cfg.Dir, l.cfg.Version) }
