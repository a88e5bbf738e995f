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

// DefaultReserve is how many bytes of the file system writes leave for the member: etcd does not survive a full disk,
// and it writes what the other members send, too. Writes are refused when less is left. Reads still work, and writes
// resume as soon as there is space.
const DefaultReserve = 128 << 20

// startReserve is how many bytes a member needs to start: it writes some pages before the first request.
const startReserve = 8 << 20

// space checks the free space of a member's file system.
type space struct {
	dir     string
	reserve *reserve
	log     *slog.Logger
	short   atomic.Bool // as last logged
}

// check returns an error if less than the reserve is left. It is called before each write; statfs(2) takes a
// microsecond.
func (s *space) check() error {
	free, need, err := s.reserve.left()
	if err != nil {
		return err
	}
	short := free < need
	if s.short.Swap(short) != short {
		s.logChange(short, free, need)
	}
	if !short {
		return nil
	}
	return &trivet.Error{Op: "write",
		Err:  fmt.Errorf("%w: the disk is full: %d MiB free, %d MiB needed", trivet.ErrUnavailable, free>>20, need>>20),
		Hint: "free some space on the file system of " + s.dir + "; writes then resume, reads and netboot still work"}
}

// CheckStartSpace returns ENOSPC if the file system of a directory has too little free space to start a member.
func CheckStartSpace(dir string) error {
	if err := checkStartSpace(dir); err != nil {
		return &trivet.Error{Op: "start member", Name: dir, Hint: hint(err),
			Err: fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)}
	}
	return nil
}

func checkStartSpace(dir string) error {
	free, err := freeIn(dir)
	free += reserveHeld(dir)
	if err == nil && free < startReserve {
		err = fmt.Errorf("%d MiB free in %s, %d MiB needed to start: %w", free>>20, dir, startReserve>>20, unix.ENOSPC)
	}
	return err
}

// freeIn returns the free bytes of the file system of a directory.
func freeIn(dir string) (int64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, fmt.Errorf("%w: file system of %s: %w", trivet.ErrUnavailable, dir, err)
	}
	return int64(fs.Bavail) * fs.Bsize, nil
}

func (s *space) logChange(short bool, free, need int64) {
	if short {
		s.log.Error("the disk is full: writes are refused until there is space", "dir", s.dir, "free", free,
			"needed", need)
		return
	}
	s.log.Info("the disk has space again: writes are accepted", "dir", s.dir, "free", free)
}

// CheckSpace returns ErrUnavailable, with a hint, if this member's disk is too full for writes.
func (m *Member) CheckSpace() error { return m.space.check() }

// spaceKV refuses writes, before they are sent, while the disk is full.
type spaceKV struct {
	clientv3.KV
	space *space
}

func (k spaceKV) Put(ctx context.Context, key, value string, opts ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	if err := k.space.check(); err != nil {
		return nil, err
	}
	return k.KV.Put(ctx, key, value, opts...)
}

func (k spaceKV) Txn(ctx context.Context) clientv3.Txn {
	return &spaceTxn{k.KV.Txn(ctx), k.space, false}
}

// spaceTxn is a transaction that knows whether it may write.
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
	t.note(ops)
	t.txn = t.txn.Then(ops...)
	return t
}

func (t *spaceTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.note(ops)
	t.txn = t.txn.Else(ops...)
	return t
}

func (t *spaceTxn) note(ops []clientv3.Op) {
	for _, op := range ops {
		t.writes = t.writes || !op.IsGet()
	}
}

func (t *spaceTxn) Commit() (*clientv3.TxnResponse, error) {
	if t.writes {
		if err := t.space.check(); err != nil {
			return nil, err
		}
	}
	return t.txn.Commit()
}
