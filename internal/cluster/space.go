package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
)

// DefaultReserve is how many bytes of its file system a member leaves to itself: the next segment of its log (64 MiB), and as
// much for its pages. etcd does not survive a write that its disk has no room for, so none is begun when less is free. Reads
// go on, and so do writes as soon as there is room again.
const DefaultReserve = 128 << 20

// startReserve is how many bytes a member needs to start: it writes some pages before anybody asks for a write.
const startReserve = 8 << 20

// space guards the file system of a member.
type space struct {
	dir     string
	reserve int64
	log     *slog.Logger
	short   atomic.Bool // as it was told last
}

// room says whether the file system has the reserve. It is asked before each write; statfs(2) takes a microsecond.
func (s *space) room() error {
	free, err := freeIn(s.dir)
	if err != nil {
		return err
	}
	short := free < s.reserve
	if s.short.Swap(short) != short {
		s.tell(short, free)
	}
	if !short {
		return nil
	}
	return &trivet.Error{Op: "write", Err: fmt.Errorf("%w: the disk is full: %d MiB are free, the store needs %d", trivet.ErrUnavailable,
		free>>20, s.reserve>>20), Hint: "make room on the file system of " + s.dir + "; reads and boots go on, writes as soon as there is room"}
}

// CheckStartSpace says, before anything is written, whether a member would last on what is free where its folder is or will be:
// ENOSPC where it would not.
func CheckStartSpace(dir string) error {
	if err := checkStartSpace(dir); err != nil {
		return &trivet.Error{Op: "start member", Name: dir, Err: fmt.Errorf("%w: %w", trivet.ErrUnavailable, err), Hint: hint(err)}
	}
	return nil
}

func checkStartSpace(dir string) error {
	free, err := freeIn(dir)
	if err == nil && free < startReserve {
		err = fmt.Errorf("%d MiB are free in %s, a start needs %d: %w", free>>20, dir, startReserve>>20, unix.ENOSPC)
	}
	return err
}

// freeIn gives the free bytes of the file system that a folder is on.
func freeIn(dir string) (int64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, fmt.Errorf("%w: file system of %s: %w", trivet.ErrUnavailable, dir, err)
	}
	return int64(fs.Bavail) * fs.Bsize, nil
}

func (s *space) tell(short bool, free int64) {
	if short {
		s.log.Error("the disk is full: no writes are taken until there is room", "dir", s.dir, "free", free, "needed", s.reserve)
		return
	}
	s.log.Info("the disk has room again: writes are taken", "dir", s.dir, "free", free)
}

// CheckSpace says whether this member's disk has room for writes: ErrUnavailable, with what to do, where it has not.
func (m *Member) CheckSpace() error { return m.space.room() }

// spaceKV refuses writes, before anything of them is sent, while there is no room.
type spaceKV struct {
	clientv3.KV
	space *space
}

func (k spaceKV) Put(ctx context.Context, key, value string, opts ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	if err := k.space.room(); err != nil {
		return nil, err
	}
	return k.KV.Put(ctx, key, value, opts...)
}

func (k spaceKV) Txn(ctx context.Context) clientv3.Txn {
	return &spaceTxn{k.KV.Txn(ctx), k.space, false}
}

// spaceTxn is a transaction that knows whether it might write.
type spaceTxn struct {
	txn    clientv3.Txn
	space  *space
	writes bool
}

func (t *spaceTxn) If(cs ...clientv3.Cmp) clientv3.Txn {
	t.txn = t.txn.If(cs...)
	return t
}

func (t *spaceTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.look(ops)
	t.txn = t.txn.Then(ops...)
	return t
}

func (t *spaceTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.look(ops)
	t.txn = t.txn.Else(ops...)
	return t
}

func (t *spaceTxn) look(ops []clientv3.Op) {
	for _, op := range ops {
		t.writes = t.writes || !op.IsGet()
	}
}

func (t *spaceTxn) Commit() (*clientv3.TxnResponse, error) {
	if t.writes {
		if err := t.space.room(); err != nil {
			return nil, err
		}
	}
	return t.txn.Commit()
}
