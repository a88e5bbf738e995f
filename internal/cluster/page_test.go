package cluster_test

import (
	"errors"
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A page of a range costs the same whatever the range holds, and is that of etcd.
func TestPagesAreReadWithoutACount(t *testing.T) {
	t.Parallel()
	const keys, limit = 50, 7
	m := start(t, t.TempDir())
	ctx, c := t.Context(), m.Client()
	put := func(value string) (rev int64) {
		for i := range keys {
			resp, err := c.Put(ctx, fmt.Sprintf("k%02d", i), value)
			if err != nil {
				t.Fatal(err)
			}
			rev = resp.Header.Revision
		}
		return rev
	}
	old := put("old")
	last := put("new")
	for name, opts := range map[string][]clientv3.OpOption{
		"prefix":   {clientv3.WithPrefix()},
		"from key": {clientv3.WithFromKey()},
		"keys":     {clientv3.WithPrefix(), clientv3.WithKeysOnly()},
		"old":      {clientv3.WithPrefix(), clientv3.WithRev(old)},
		"one":      {},
	} {
		opts = append(opts, clientv3.WithLimit(limit))
		want, err := c.Get(ctx, "k1", opts...)
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.Get(ctx, "k1", append(opts, clientv3.WithSerializable())...)
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(got.Kvs) != fmt.Sprint(want.Kvs) || got.More != want.More ||
			got.Header.Revision != want.Header.Revision || got.Header.Revision != last {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
		if got.Count > limit+1 {
			t.Errorf("%s: %d keys were counted", name, got.Count)
		}
	}
	if err := m.Compact(ctx, last); err != nil {
		t.Fatal(err)
	}
	for rev, want := range map[int64]error{old: rpctypes.ErrCompacted, last + 100: rpctypes.ErrFutureRev} {
		_, err := c.Get(ctx, "k", clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithRev(rev),
			clientv3.WithSerializable())
		if !errors.Is(err, want) {
			t.Errorf("at revision %d: %v, want %v", rev, err, want)
		}
	}
}
