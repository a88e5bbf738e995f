package recovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/membership"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// Jump is how far the revisions of a recovered cluster are above those that it was recovered from. At ten thousand
// revisions a second, a cluster needs three years for as many.
const Jump = 1 << 40

// Request is a recovery that an operator requests: what is recovered becomes the data directory of the first head of
// another incarnation of the cluster, see [trivet.Recovered].
type Request struct {
	Dir       string   // the data directory; it is created, or empty
	Name      string   // of the head; empty: the next name of a head
	Advertise []string // where the head will be reached, for the command that the plan shows
	Cluster   string   // ID that the cluster must have; empty: any
	Version   string   // of this program
	Cause     string   // [trivet.Recovered.Cause]
	// Approve is called with the plan before anything is changed that is not temporary. Its error ends the recovery.
	Approve func(*Plan) error
	// Confirm is called when all is ready to be put in place, unless it is nil. Its error ends the recovery.
	Confirm  func() error
	Progress Progress
}

// material is what a cluster is recovered from.
type material struct {
	plan    Plan // what is known from the source
	keys    *auth.Keys
	token   string   // the ID of that by which the head had joined whose directory it becomes
	former  string   // the name of that head
	peers   []string // URLs of heads that the records may not have
	need    int64    // bytes of space
	restore func(ctx context.Context, cfg cluster.Config) error
	lacks   func(ref trivet.BlobRef) (bool, error) // whether the content of a blob is not there
	blobs   func(ctx context.Context, dir string, refs []trivet.BlobRef) error
}

// FromBackup recovers a cluster from the backup that a location names, or the newest complete one there.
func FromBackup(ctx context.Context, from Location, key *Key, r Request) (*Plan, error) {
	t, err := openTarget(r.Dir, false)
	if err != nil {
		return nil, explain("recover to", r.Dir, err)
	}
	defer t.close()
	if t.ready() {
		return t.complete()
	}
	b, err := openBackup(ctx, from, r.Cluster, key)
	if err != nil {
		return nil, explain("recover from", from.Path, errors.Join(err, t.clear()))
	}
	defer b.file.Close()
	m, err := b.material(ctx, r.Progress)
	if err != nil {
		return nil, explain("recover from", from.Path, errors.Join(err, t.clear()))
	}
	return t.recover(ctx, r, m)
}

// FromData recovers a cluster from the data directory of one head, which does not run. Where it is r.Dir itself, what
// was there is moved to its subdirectory aside.
func FromData(ctx context.Context, dir string, r Request) (*Plan, error) {
	inPlace := sameDir(dir, r.Dir)
	if err := cluster.CheckNotRunning(filepath.Join(dir, "store")); inPlace && err != nil {
		return nil, err
	}
	t, err := openTarget(r.Dir, inPlace)
	if err != nil {
		return nil, explain("recover to", r.Dir, err)
	}
	defer t.close()
	if t.ready() {
		return t.complete()
	}
	m, err := t.salvage(ctx, dir, inPlace, r)
	if err != nil {
		return nil, explain("recover from", dir, errors.Join(err, t.clear()))
	}
	return t.recover(ctx, r, m)
}

// Abandon ends a recovery into a directory that only remains to be completed. It fails where it has been begun to put
// it in place.
func Abandon(dir string) error {
	t, err := openTarget(dir, true)
	if err != nil {
		return err
	}
	defer t.close()
	for _, name := range []string{filepath.Join(dir, dataName), t.new(dataName)} {
		if _, err := os.Stat(name); err != nil {
			return &trivet.Error{Op: "recover to", Name: dir,
				Err:  fmt.Errorf("%w: a recovery is half in place", trivet.ErrConflict),
				Hint: "where no other head serves, complete it: trivet recover --from-survivor --data-dir " + dir}
		}
	}
	if err := os.Remove(t.temp("ready")); err != nil {
		return err
	}
	return t.clear()
}

// CheckSpace returns why a recovery from the data of a directory into itself would fail for lack of space.
func CheckSpace(dir string) error {
	return checkSpace(dir, 2*sizeOf(filepath.Join(dir, "store", "etcd"))+cluster.RestoreSpace)
}

// GiveUp ends a recovery into a directory that was interrupted before it had changed anything there. It reports whether
// the recovery only remains to be completed instead.
func GiveUp(dir string) (ready bool, err error) {
	t, err := openTarget(dir, true)
	if err != nil {
		return false, err
	}
	defer t.close()
	if t.ready() {
		return true, nil
	}
	return false, t.clear()
}

func sameDir(a, b string) bool {
	x, err := os.Stat(a)
	y, err2 := os.Stat(b)
	return err == nil && err2 == nil && os.SameFile(x, y)
}

// recover makes the data directory in the temporary one, and then puts it in place. Where it is interrupted before,
// the next one begins again, and afterwards it only puts in place what is complete.
func (t *target) recover(ctx context.Context, r Request, m *material) (p *Plan, err error) {
	defer func() {
		if err != nil {
			err = explain("recover", t.dir, errors.Join(err, t.clear()))
		}
	}()
	if r.Cluster != "" && r.Cluster != m.plan.Cluster {
		return nil, &trivet.Error{Op: "recover",
			Err:  fmt.Errorf("%w: it is of cluster %s, not of %s", trivet.ErrInvalid, m.plan.Cluster, r.Cluster),
			Hint: "name what belongs to that cluster, or correct --cluster"}
	}
	if err := checkSpace(t.dir, m.need+cluster.RestoreSpace); err != nil {
		return nil, err
	}
	p = &m.plan
	p.Dir, p.Advertise, p.Jump, p.Cause = t.dir, r.Advertise, Jump, r.Cause
	cfg := cluster.Config{Dir: t.new("store"), Name: "recovered", Reserve: -1, Jump: Jump, Snapshots: cluster.ShortLog,
		Token: p.Cluster + " " + time.Now().UTC().Format(time.RFC3339Nano)}
	if err := m.restore(ctx, cfg); err != nil {
		return nil, err
	}
	member, err := t.change(ctx, r, m, cfg)
	if err == nil {
		err = cluster.CheckLog(cfg.Dir)
	}
	if err != nil {
		return nil, err
	}
	if _, err := auth.Install(t.new("keys"), m.keys.Bundle()); err != nil {
		return nil, err
	}
	err = membership.WriteRecovered(t.new(""), r.Version, membership.Recovered{Name: p.Head, Member: member,
		Incarnation: p.Incarnation, Token: m.token, Former: m.former})
	if err != nil {
		return nil, err
	}
	if r.Confirm != nil {
		p.probe(ctx, m)
		if err := errors.Join(p.checkAlive(), r.Confirm()); err != nil {
			return nil, err
		}
	}
	if err := t.setReady(p); err != nil {
		return nil, err
	}
	return t.complete()
}

// change runs the restored store, shows the plan, and changes the records to what is certain. It returns the ID of the
// member.
func (t *target) change(ctx context.Context, r Request, m *material, cfg cluster.Config) (id uint64, err error) {
	member, err := cluster.Start(ctx, cfg)
	if err != nil {
		return 0, err
	}
	defer member.Close()
	s := store.New(member.Client(), store.Options{Head: cfg.Name, Cipher: m.keys.Values(),
		Logger: slog.New(slog.DiscardHandler)})
	tables := state.New(s)
	if err := s.Start(ctx); errors.Is(err, store.ErrRefused) {
		return 0, fmt.Errorf("%w: its keys are not those of its store", trivet.ErrInvalid)
	} else if err != nil {
		return 0, err
	}
	defer s.Close()
	if err := checkKnown(tables); err != nil {
		return 0, err
	}
	p := &m.plan
	if err := errors.Join(p.describe(tables, r.Name), p.describeBlobs(tables, m.lacks)); err != nil {
		return 0, err
	}
	p.probe(ctx, m)
	if err := p.checkAlive(); err != nil {
		return 0, err
	}
	if r.Approve != nil {
		if err := r.Approve(p); err != nil {
			return 0, err
		}
	}
	if err := m.blobs(ctx, t.new("blobs"), p.refs); err != nil {
		return 0, err
	}
	if err := (&adapter{tables: tables, plan: p, progress: r.Progress}).run(ctx); err != nil {
		return 0, err
	}
	return member.ID(), member.BeginLog(ctx)
}

// checkKnown refuses records of a later release than this program's: it would drop what it does not know.
func checkKnown(tables *state.Tables) error {
	site, err := tables.Sites.Get(trivet.SiteName)
	if errors.Is(err, trivet.ErrNotFound) {
		return nil
	}
	if err == nil && site.Status.ClusterVersion.Compare(trivet.CurrentRelease) > 0 {
		return &trivet.Error{Op: "recover", Hint: "install that release; on a host whose head was upgraded by command, its " +
			"program is DATA-DIR/program/*/trivet",
			Err: fmt.Errorf("%w: the records use what release %s added, and this program is of release %s", trivet.ErrInvalid,
				site.Status.ClusterVersion, trivet.CurrentRelease)}
	}
	return err
}

// salvage reads the data directory of a head.
func (t *target) salvage(ctx context.Context, dir string, inPlace bool, r Request) (*material, error) {
	former, err := membership.ReadFormer(dir, r.Version)
	if err != nil {
		return nil, err
	}
	refused := &trivet.Error{Op: "recover from", Name: dir, Err: trivet.ErrConflict}
	switch {
	case former.Witness:
		refused.Err = fmt.Errorf("%w: it is of witness %s, which has no keys", trivet.ErrConflict, former.Name)
		refused.Hint = "use the data directory of a full head, or a backup: trivet recover --from-backup"
		return nil, refused
	case former.Fenced != "":
		refused.Err = fmt.Errorf("%w: the cluster was recovered without this head, as incarnation %s",
			trivet.ErrConflict, former.Fenced)
		refused.Hint = "let it join that cluster: trivet server --rejoin --join URL --token TOKEN"
		return nil, refused
	}
	if err := cluster.CheckNotRunning(filepath.Join(dir, "store")); errors.Is(err, trivet.ErrUnavailable) {
		return nil, err // elsewhere the directory may be read-only
	}
	keys, err := auth.Load(filepath.Join(dir, "keys"))
	if err != nil {
		return nil, &trivet.Error{Op: "open keys", Name: filepath.Join(dir, "keys"), Err: err,
			Hint: "without them its store cannot be read: recover from a backup: trivet recover --from-backup"}
	}
	if err := checkSpace(t.dir, sizeOf(filepath.Join(dir, "store", "etcd"))+cluster.RestoreSpace); err != nil {
		return nil, err
	}
	salvaged, err := cluster.Salvage(ctx, filepath.Join(dir, "store"), t.temp("salvaged"),
		cluster.Config{Name: former.Name})
	if err != nil {
		return nil, err
	}
	m := &material{keys: keys, need: salvaged.Bytes, plan: Plan{From: FromDataDir, Source: dir,
		Cluster: keys.CA.Cluster(), Member: former.Name, DataTime: salvaged.Written.UTC().Truncate(time.Second),
		Torn: salvaged.Torn}}
	if inPlace {
		m.token, m.former = former.Token, cmp.Or(former.Former, former.Name)
	}
	for _, p := range former.Peers {
		if p.Name != former.Name {
			m.peers = append(m.peers, p.URL)
		}
	}
	m.restore = func(ctx context.Context, cfg cluster.Config) error {
		f, err := os.Open(salvaged.Database)
		if err != nil {
			return err
		}
		defer f.Close()
		return cluster.Restore(ctx, cfg, f)
	}
	from := filepath.Join(dir, "blobs")
	m.lacks = func(ref trivet.BlobRef) (bool, error) { return lacksBlob(from, ref) }
	m.blobs = func(ctx context.Context, to string, refs []trivet.BlobRef) error {
		if inPlace {
			return nil
		}
		return copyBlobs(ctx, from, to, refs)
	}
	return m, nil
}
