package cluster

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/txn"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
)

// pageKV reads pages of ranges. For each request with a limit etcd also counts all keys of the range: a second for each
// page of a range of millions. Here only the page is read, from this member. The count of its response is that of the
// keys that were read.
type pageKV struct {
	clientv3.KV
	etcd *etcdserver.EtcdServer
}

func (k pageKV) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	op := clientv3.OpGet(key, opts...)
	if op.Limit() == 0 || !op.IsSerializable() || op.IsCountOnly() || op.IsSortSet() || isFiltered(op) {
		return k.KV.Get(ctx, key, opts...)
	}
	page, _, err := txn.Range(ctx, k.etcd.Logger(), k.etcd.KV(), &etcdserverpb.RangeRequest{Key: op.KeyBytes(),
		RangeEnd: op.RangeBytes(), Limit: op.Limit(), Revision: op.Rev(), Serializable: true,
		KeysOnly: op.IsKeysOnly()}, false)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, mvcc.ErrCompacted):
		return nil, rpctypes.ErrCompacted
	case errors.Is(err, mvcc.ErrFutureRev):
		return nil, rpctypes.ErrFutureRev
	case err != nil:
		return nil, err
	}
	return (*clientv3.GetResponse)(page), nil
}

// isFiltered reports whether a range is of keys by their revisions.
func isFiltered(op clientv3.Op) bool {
	return op.MinModRev() != 0 || op.MaxModRev() != 0 || op.MinCreateRev() != 0 || op.MaxCreateRev() != 0
}
