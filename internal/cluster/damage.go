package cluster

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"

	"github.com/trivet-project/trivet"
)

// HintReplace is the hint where a member's data is damaged, lost or old. A copy of older data must not be used instead
// while there are other members: with it this member would vote for a log without writes that it has acknowledged.
const HintReplace = "do not put older data in its place, which would lose acknowledged writes: on another head run " +
	"'trivet head replace' for this head, and start this one by the command that it prints, with --rejoin; only a " +
	"head that is alone is restored from a backup of its data directory"

// errDamaged: this member's data differs from that of the others.
var errDamaged = errors.New("the data of this member differs from that of the others")

// LastIndex returns the index of the last entry of the log in a member's directory, 0 if it has none. No member may
// run in it.
func LastIndex(dir string) (uint64, error) {
	path := filepath.Join(dir, "etcd/member/wal")
	snaps, err := wal.ValidSnapshotEntries(zap.NewNop(), path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(snaps) == 0 {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the log: %w: %w", trivet.ErrUnavailable, err)
	}
	last := snaps[len(snaps)-1]
	w, err := wal.OpenForRead(zap.NewNop(), path, last)
	if err != nil {
		return 0, fmt.Errorf("read the log: %w: %w", trivet.ErrUnavailable, err)
	}
	defer w.Close()
	_, _, entries, err := w.ReadAll()
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) { // the end of the log may not be written completely
		return 0, fmt.Errorf("read the log: %w: %w", trivet.ErrUnavailable, err)
	}
	if len(entries) == 0 {
		return last.GetIndex(), nil
	}
	return entries[len(entries)-1].GetIndex(), nil
}

// Acknowledged returns the index of an entry of the log that this member has surely written: of a while ago.
func (m *Member) Acknowledged() uint64 { return m.acknowledged.Load() }

// watchData keeps Acknowledged, and stops this member when the others report that its data differs from theirs.
func (m *Member) watchData() {
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for applied := uint64(0); ; {
		select {
		case <-m.closing:
			return
		case <-tick.C:
		}
		m.acknowledged.Store(applied)
		applied = m.etcd.Server.AppliedIndex()
		if slices.Contains(m.damaged(), m.ID()) {
			m.fatal.fail(errDamaged)
			return
		}
	}
}

// damaged returns the members whose data differs from that of the majority, 0 if there is no majority.
func (m *Member) damaged() (ids []uint64) {
	for _, a := range m.etcd.Server.Alarms() {
		if a.GetAlarm() == etcdserverpb.AlarmType_CORRUPT {
			ids = append(ids, a.GetMemberID())
		}
	}
	return ids
}
