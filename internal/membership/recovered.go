package membership

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/peer"
)

// RecoveringDir is the directory in a data directory that a recovery has while it is not complete.
const RecoveringDir = "recovering"

// Recovered is the first head of a recovered cluster.
type Recovered struct {
	Name        string
	Incarnation string
	Member      uint64 // ID of its member of the store
	// Token is the ID of the token by which the former head of the directory had joined: the command of its starts may
	// still have that.
	Token string
	// Former is the name of that head, which that command may have, too.
	Former string
}

// WriteRecovered makes a directory, which has the keys and the store already, the data directory of that head.
func WriteRecovered(dir, version string, r Recovered) error {
	d := dataFile{Format: dataFormat, Name: r.Name, Role: trivet.RoleVoter, Incarnation: r.Incarnation,
		Token: r.Token, Former: r.Former, Member: cluster.FormatID(r.Member), Started: true}
	return d.write(dir, version)
}

// Former is what a data directory says of the head that ran in it.
type Former struct {
	Name        string
	Witness     bool
	Started     bool
	Incarnation string
	Token       string // the ID of that by which it joined
	Former      string // the name that it had before it was recovered
	Fenced      string // a later incarnation of the cluster, without this head
	Peers       []cluster.Peer
}

// ReadFormer reads a data directory of a head that does not run.
func ReadFormer(dir, version string) (f Former, err error) {
	d, err := readData(dataPath(dir))
	if err == nil && !d.exists() {
		err = fmt.Errorf("%w: there is no head.json", trivet.ErrNotFound)
	}
	if err != nil {
		return f, &trivet.Error{Op: "open data directory", Name: dir, Err: err,
			Hint: "name the data directory of a head, such as /var/lib/trivet"}
	}
	if d.Format != dataFormat {
		return f, errFormat(dir, &d, version)
	}
	return Former{Name: d.Name, Witness: d.witness(), Started: d.Started, Incarnation: d.Incarnation, Token: d.Token,
		Former: d.Former,
		Fenced: d.Fenced, Peers: d.Peers}, nil
}

// Incarnation returns that of this head's cluster; empty where it was never recovered.
func (l *Local) Incarnation() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.data.Incarnation
}

// Fence records that the cluster was recovered without this head, as another head of it says. It is final.
func (l *Local) Fence(incarnation string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.data.Fenced != "" {
		return
	}
	l.data.Fenced = incarnation
	if err := l.saveData(); err != nil {
		l.cfg.Log.Error("cannot save that this head is fenced", "error", err)
	}
	close(l.fenced)
}

// Fenced returns a channel that is closed when this head is fenced.
func (l *Local) Fenced() <-chan struct{} { return l.fenced }

// ErrFenced is the error of a head whose cluster was recovered without it.
func (l *Local) ErrFenced() error {
	return &trivet.Error{Op: "run head", Name: l.data.Name, Hint: hintRejoin,
		Err: fmt.Errorf("%w: its cluster was recovered without it, as incarnation %s: it serves nothing",
			trivet.ErrForbidden, cmp.Or(l.data.Fenced, "unknown"))}
}

// fenceInterval is how often heads of an earlier incarnation are called.
const fenceInterval = 5 * time.Second

// Fencer calls the heads that a recovery has fenced, at their last addresses, so that those that return learn of it
// whomever they know. It does so for as long as there are records of them.
type Fencer struct {
	Records *Records
	Client  *peer.Client
}

// Run calls them until ctx ends.
func (f *Fencer) Run(ctx context.Context) {
	tick := time.NewTicker(fenceInterval)
	defer tick.Stop()
	for {
		var calls sync.WaitGroup
		for _, url := range f.Records.Fenced() {
			calls.Go(func() { _, _ = f.Client.Ping(ctx, url) }) // the request is what matters
		}
		calls.Wait()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Fenced returns the URLs of the heads that the last recovery fenced, by name.
func (r *Records) Fenced() map[string]string {
	urls := map[string]string{}
	site, err := r.Sites.GetShared(trivet.SiteName)
	if err != nil || site.Status.Recovered == nil {
		return urls
	}
	used := map[string]bool{}
	for h := range r.Heads.AllShared() {
		if h.Status.State != trivet.HeadRemoved {
			used[h.Status.Peer] = true
		}
	}
	for h := range r.Heads.AllShared() {
		if h.Status.State == trivet.HeadRemoved && h.Status.Fenced && h.Status.Peer != "" && !used[h.Status.Peer] {
			urls[h.Name] = h.Status.Peer
		}
	}
	return urls
}
