package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/faultinject"
)

// DefaultQuota is the quota of a store whose configuration has none.
const DefaultQuota = 8 << 30

// The quota is kept by the heads, before a write is sent. etcd's own quota is off: it refuses every put once it was
// reached, also those of deletions, forever.
//
// Usage is the size of the store and its quota, in bytes.
type Usage struct {
	File  int64 // size of the database; it only becomes smaller by Defragment
	Used  int64 // part of File that is in use, with what is deleted but not compacted yet
	Quota int64
}

// Percentages of the quota in use. From full on, the rest is a reserve for writes that a full store must accept.
const (
	fillingPercent = 70
	fullPercent    = 90
)

// The growth of a write that is accepted from the reserve, in bytes: of one that adds a record, such as an address, and
// of one that only changes some. An agent that could not report for a while reports many actions at once.
const (
	smallRecord = 2 << 10
	smallChange = 16 << 10
)

// Filling reports whether an operator should know: writes will be refused when the store grows on.
func (u Usage) Filling() bool { return u.Used >= u.Quota/100*fillingPercent }

// Full reports whether writes that make the store larger are refused.
func (u Usage) Full() bool { return u.Used >= u.Quota/100*fullPercent }

// Admit returns an error if a write that adds records, or makes the store larger by some bytes, does not fit.
func (u Usage) Admit(added int, growth int64) error {
	small := int64(smallChange)
	if added > 0 {
		small = smallRecord
	}
	switch {
	case !u.Full() || added <= 0 && growth <= 0 && !faultinject.FullStore:
		return nil
	case u.Used < u.Quota && growth <= small && !faultinject.FullStore:
		return nil
	}
	return u.errFull()
}

func (u Usage) errFull() error {
	return &trivet.Error{Op: "write",
		Err: fmt.Errorf("%w: the store is full: %d of %d MiB are in use", trivet.ErrUnavailable, u.Used>>20,
			u.Quota>>20),
		Hint: "delete records that are not needed, such as provisions, images and machines; writes resume within two " +
			"minutes; or start all heads with a larger --store-quota; reads and netboot still work"}
}

// Usage returns the size of this member's store.
func (m *Member) Usage() Usage {
	b := m.etcd.Server.Backend()
	return Usage{File: b.Size(), Used: b.SizeInUse(), Quota: m.quota}
}

// FreeSpace returns the free space of the file system that the store is in, in bytes.
func (m *Member) FreeSpace() (int64, error) { return freeIn(m.space.dir) }

// Admit is [Usage.Admit] of this member's store.
func (m *Member) Admit(added int, growth int64) error { return m.Usage().Admit(added, growth) }

// CheckQuota returns ErrUnavailable, with a hint, if the store is full.
func (m *Member) CheckQuota() error {
	if u := m.Usage(); u.Full() {
		return u.errFull()
	}
	return nil
}

// compactedKey is a key that is written after a compaction: etcd counts space that it frees as unused two writes later.
const compactedKey = "trivet-compacted"

// Compact drops what was replaced or deleted before a revision. Its space can then be used again.
func (m *Member) Compact(ctx context.Context, revision int64) error {
	_, err := m.client.Compact(ctx, revision, clientv3.WithCompactPhysical())
	if errors.Is(err, rpctypes.ErrCompacted) { // by another head
		err = nil
	}
	if err == nil {
		_, err = m.client.Put(ctx, compactedKey, strconv.FormatInt(revision, 10))
	}
	return err
}

// Defragment makes the file of this member's store as small as its content. Meanwhile this member has no part in
// writes, so a leader transfers its leadership before.
func (m *Member) Defragment() error {
	need := m.Usage().Used + m.space.reserve.size
	if free, err := freeIn(m.space.dir); err != nil || free < need {
		return fmt.Errorf("%w: defragmentation needs %d MiB, and %d MiB are free: %w", trivet.ErrUnavailable,
			need>>20, free>>20, err)
	}
	if !m.transferLeadership() {
		return fmt.Errorf("%w: no other member takes over the leadership", trivet.ErrUnavailable)
	}
	m.defragmenting.Store(true)
	defer m.defragmenting.Store(false)
	return m.etcd.Server.Defragment()
}

// ClearAlarms ends the alarms of etcd that nothing else ends, and until which it refuses writes: for a full store,
// which a quota of etcd has raised, and for members whose data differs from that of the majority, which stop by themselves.
// An alarm for the data of all members stays, as it is not known which of them are right.
func (m *Member) ClearAlarms(ctx context.Context) error {
	for _, a := range m.etcd.Server.Alarms() {
		damaged := a.GetAlarm() == etcdserverpb.AlarmType_CORRUPT
		if damaged && (a.GetMemberID() == 0 || a.GetMemberID() == m.ID()) {
			continue
		}
		alarm := &clientv3.AlarmMember{MemberID: a.GetMemberID(), Alarm: a.GetAlarm()}
		if _, err := m.client.AlarmDisarm(ctx, alarm); err != nil {
			return fmt.Errorf("%w: clear an alarm of the store: %w", trivet.ErrUnavailable, err)
		}
	}
	return nil
}
