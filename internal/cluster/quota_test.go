package cluster_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
)

func TestAdmit(t *testing.T) {
	for _, c := range []struct {
		used   int64 // percent of the quota
		added  int
		growth int64
		fits   bool
	}{
		{89, 10, 1 << 20, true},
		{90, 1, 1 << 20, false},
		{90, 1, 1 << 10, true}, // an event
		{90, 0, 1 << 10, true}, // a status
		{90, 1, 5 << 10, false},
		{90, 0, 15 << 10, true}, // a run's status with many reports
		{90, 0, 20 << 10, false},
		{100, 0, 1 << 10, false},
		{100, 1, -5, false},
		{100, 0, 0, true},
		{150, -1, -5, true}, // deletions always fit
	} {
		err := cluster.Usage{Used: c.used << 20, Quota: 100 << 20}.Admit(c.added, c.growth)
		if (err == nil) != c.fits || err != nil && !errors.Is(err, trivet.ErrUnavailable) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// The member of a leader is defragmented after another member has become the leader, and takes writes again.
func TestDefragmentLeader(t *testing.T) {
	t.Parallel()
	s, m := three(t)
	leader := m[slices.IndexFunc(m, func(n *node) bool { return n.IsLeader() })]
	var rev int64
	for range 40 {
		s.eventually("write", func(ctx context.Context) error {
			resp, err := leader.Client().Put(ctx, "big", strings.Repeat("x", 256<<10))
			if err == nil {
				rev = resp.Header.Revision
			}
			return err
		})
	}
	s.eventually("free what was compacted", func(ctx context.Context) error {
		if err := leader.Compact(ctx, rev); err != nil {
			return err
		}
		if u := leader.Usage(); u.Used > u.File/2 {
			return errors.New("still in use")
		}
		return nil
	})
	before := leader.Usage().File
	s.eventually("defragment", func(context.Context) error { return leader.Defragment() })
	if after := leader.Usage().File; after > before/2 || leader.IsLeader() {
		t.Errorf("the file had %d bytes and has %d; leader: %v", before, after, leader.IsLeader())
	}
	s.eventually("write after it", func(ctx context.Context) error {
		_, err := leader.Client().Put(ctx, "k", "after")
		return err
	})
	got, err := leader.Client().Get(t.Context(), "big", clientv3.WithSerializable())
	if err != nil || len(got.Kvs) != 1 {
		t.Errorf("%v, %v", got, err)
	}
}
