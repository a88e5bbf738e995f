package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/trivet-project/trivet"
)

// Salvaged is what was read of the data of a member that does not run any more.
type Salvaged struct {
	Database string // file of the store; the values in it are encrypted
	Bytes    int64
	Written  time.Time // until when all that was acknowledged is in it
	Torn     bool      // the end of the log was written incompletely
}

// Salvage copies the data of a member, whose directory is from, to another directory, and makes it contain all that is
// in its log: also the end, of which the member did not know whether the others had it. What was acknowledged may be
// there. from is only read. to must not exist, and is not a member of any cluster.
func Salvage(ctx context.Context, from, to string, log Config) (*Salvaged, error) {
	s, err := salvage(ctx, from, to, log)
	if err != nil {
		e := &trivet.Error{Op: "read the store", Name: from, Err: err}
		switch {
		case errors.Is(err, unix.ENOSPC):
			e.Hint = "free some space, or use another directory"
		case ctx.Err() == nil:
			e.Hint = "this data cannot be used: recover from the data directory of another head, or from a backup: " +
				"trivet recover --from-backup"
		}
		return nil, e
	}
	return s, nil
}

func salvage(ctx context.Context, from, to string, cfg Config) (*Salvaged, error) {
	source, copied := filepath.Join(from, "etcd", "member"), filepath.Join(to, "etcd", "member")
	s := &Salvaged{}
	var err error
	if s.Written, err = lastCurrent(from); err != nil {
		return nil, err
	}
	if err := copyTree(ctx, source, copied); err != nil {
		return nil, err
	}
	if s.Torn, err = commitAll(filepath.Join(copied, "wal")); err != nil {
		return nil, err
	}
	cfg.Dir, cfg.alone, cfg.Reserve = to, true, -1
	m, err := Start(ctx, cfg)
	if err != nil {
		return nil, err
	}
	err = m.CatchUp(ctx)
	m.Close()
	if err != nil {
		return nil, err
	}
	s.Database = filepath.Join(copied, "snap", "db")
	info, err := os.Stat(s.Database)
	if err != nil {
		return nil, err
	}
	s.Bytes = info.Size()
	return s, nil
}

// lastWritten returns when the log in a directory was written last.
func lastWritten(dir string) (last time.Time, err error) {
	files, err := os.ReadDir(dir)
	for _, f := range files {
		info, err := f.Info()
		if err == nil && strings.HasSuffix(f.Name(), ".wal") && info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	if err == nil && last.IsZero() {
		err = fmt.Errorf("%w: there is no log in %s", trivet.ErrNotFound, dir)
	}
	return last, err
}

// commitAll makes a log end where its last whole entry does, all of its entries committed, and its member a voter.
// etcd, which is made to continue alone by it, would drop entries that are not committed.
func commitAll(dir string) (torn bool, err error) {
	snaps, err := wal.ValidSnapshotEntries(zap.NewNop(), dir)
	if err == nil && len(snaps) == 0 {
		err = errors.New("it has no beginning")
	}
	if errors.Is(err, io.ErrUnexpectedEOF) && wal.Repair(zap.NewNop(), dir) {
		torn = true
		snaps, err = wal.ValidSnapshotEntries(zap.NewNop(), dir)
	}
	if err != nil {
		return torn, fmt.Errorf("its log: %w", err)
	}
	for {
		err = commitFrom(dir, snaps[len(snaps)-1])
		if torn || !errors.Is(err, io.ErrUnexpectedEOF) || !wal.Repair(zap.NewNop(), dir) {
			break
		}
		torn = true
	}
	if err != nil {
		err = fmt.Errorf("its log: %w", err)
	}
	return torn, err
}

func commitFrom(dir string, snap *walpb.Snapshot) error {
	w, err := wal.Open(zap.NewNop(), dir, snap)
	if err != nil {
		return err
	}
	metadata, state, entries, err := w.ReadAll()
	if err == nil {
		last := &raftpb.Entry{Index: new(snap.GetIndex()), Term: new(snap.GetTerm())}
		if len(entries) > 0 {
			last = entries[len(entries)-1]
		}
		var vote *raftpb.Entry
		if vote, err = promotion(metadata, last, entries); err == nil {
			err = w.Save(&raftpb.HardState{Term: new(max(state.GetTerm(), last.GetTerm())), Vote: new(state.GetVote()),
				Commit: new(vote.GetIndex())}, []*raftpb.Entry{vote})
		}
	}
	return errors.Join(err, w.Close())
}

// promotion returns the entry after the last one that makes the member of a log a voter: a learner cannot continue
// alone. Where it is one already, the entry changes nothing. One that was removed cannot continue, either.
func promotion(metadata []byte, last *raftpb.Entry, entries []*raftpb.Entry) (*raftpb.Entry, error) {
	var m etcdserverpb.Metadata
	if err := proto.Unmarshal(metadata, &m); err != nil || m.GetNodeID() == 0 {
		return nil, fmt.Errorf("%w: it names no member: %v", trivet.ErrInvalid, err)
	}
	for _, e := range entries {
		var c raftpb.ConfChange
		if e.GetType() == raftpb.EntryConfChange && proto.Unmarshal(e.Data, &c) == nil &&
			c.GetType() == raftpb.ConfChangeRemoveNode && c.GetNodeId() == m.GetNodeID() {
			return nil, fmt.Errorf("%w: its member was removed from the cluster", trivet.ErrConflict)
		}
	}
	change := membership.ConfigChangeContext{Member: membership.Member{ID: types.ID(m.GetNodeID())}, IsPromote: true}
	text, err := json.Marshal(change)
	if err != nil {
		return nil, err
	}
	data, err := proto.Marshal(&raftpb.ConfChange{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(m.GetNodeID()),
		Context: text})
	return &raftpb.Entry{Type: raftpb.EntryConfChange.Enum(), Term: new(last.GetTerm()), Index: new(last.GetIndex() + 1),
		Data: data}, err
}

// copyTree copies a directory with its files to one that does not exist, and writes them to the disk.
func copyTree(ctx context.Context, from, to string) error {
	entries, err := os.ReadDir(from)
	if err == nil {
		err = os.MkdirAll(to, 0o700)
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		source, target := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		switch {
		case e.IsDir():
			err = copyTree(ctx, source, target)
		case e.Type().IsRegular() && !strings.HasSuffix(e.Name(), ".tmp"): // segments of the log that are not used yet
			err = copyFile(source, target)
		}
		if err != nil {
			return err
		}
	}
	return syncDir(to)
}

func copyFile(from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	return writeSynced(to, f)
}
