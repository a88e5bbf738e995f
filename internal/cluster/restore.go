package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
)

// RestoreSpace is how many bytes a restore needs besides those of the snapshot: etcd allocates two segments of its
// log.
const RestoreSpace = 2*64<<20 + startReserve

// Restore creates the data of a member in cfg.Dir, which must not exist or be empty, that is a cluster by itself and
// has what a snapshot has: all values, at their revisions. A reader that fails leaves data that is not to be used.
// Its next write has a revision above that of the snapshot by more than cfg.Jump, and if that is not 0 it has no
// history: those that watched the store after the snapshot must read it again.
//
// etcd creates the member, with its log and its identity. Then its database is replaced by the snapshot, which gets
// from it what belongs to the member and not to the store: who the members are, and how far the log is applied.
func Restore(ctx context.Context, cfg Config, snapshot io.Reader) error {
	if err := restore(ctx, cfg, snapshot); err != nil {
		e := &trivet.Error{Op: "restore the store", Name: cfg.Dir, Err: err}
		if errors.Is(err, unix.ENOSPC) {
			e.Hint = "free some space there, or use another directory"
		}
		return e
	}
	return nil
}

func restore(ctx context.Context, cfg Config, snapshot io.Reader) error {
	entries, err := os.ReadDir(cfg.Dir)
	if err == nil && len(entries) > 0 {
		return fmt.Errorf("%w: the directory is not empty", trivet.ErrExists)
	}
	m, err := Start(ctx, cfg)
	if err != nil {
		return err
	}
	m.Close()
	own := filepath.Join(cfg.Dir, "etcd", "member", "snap", "db")
	restored := own + ".restored"
	if err := writeSynced(restored, snapshot); err != nil {
		return err
	}
	if err := adopt(restored, own, cfg.Jump); err != nil {
		return fmt.Errorf("%w: %w", trivet.ErrInvalid, err)
	}
	if err := os.Rename(restored, own); err != nil {
		return err
	}
	return syncDir(filepath.Dir(own))
}

// BeginLog makes the log of a restored member begin after what it has: the values of the snapshot are in no entry of it.
// A member that is added later gets a copy of the store then, and would get the entries only otherwise. It is called
// before members are added, of a member with Config.Snapshots = ShortLog.
func (m *Member) BeginLog(ctx context.Context) error {
	for range ShortLog/2 + 1 { // two entries each, which change no value, until a snapshot is written
		lease, err := m.client.Grant(ctx, 60)
		if err == nil {
			_, err = m.client.Revoke(ctx, lease.ID)
		}
		if err != nil {
			return fmt.Errorf("begin the log: %w: %w", trivet.ErrUnavailable, err)
		}
	}
	m.Commit()
	return nil
}

// ShortLog is after how many entries a restored member writes a snapshot, while it is not part of a cluster.
const ShortLog = 100

// CheckLog returns an error if the log in a member's directory does not begin after a restore. The member does not run.
func CheckLog(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "etcd", "member", "snap", "*.snap"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%w: the log of the restored store does not begin after it", trivet.ErrUnavailable)
	}
	return err
}

func writeSynced(path string, from io.Reader) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Sync(), f.Close())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// adopt gives the database in one file what belongs to the member whose database is the other one, and lets its
// revisions jump.
func adopt(restored, own string, jump int64) error {
	to, err := bbolt.Open(restored, 0o600, nil)
	if err != nil {
		return err
	}
	defer to.Close()
	from, err := bbolt.Open(own, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer from.Close()
	return from.View(func(own *bbolt.Tx) error {
		return to.Update(func(tx *bbolt.Tx) error {
			last, err := lastRevision(tx)
			if err == nil {
				err = copyIdentity(tx, own)
			}
			if err == nil && jump > 0 {
				err = compactAt(tx, last+jump)
			}
			return err
		})
	})
}

// compactAt requests that the store is compacted at a later revision than it has. The store then has that one.
func compactAt(tx *bbolt.Tx, revision int64) error {
	key := make([]byte, 17) // the revision, "_", and the number of a change in it
	binary.BigEndian.PutUint64(key, uint64(revision))
	key[8] = '_'
	return tx.Bucket(schema.Meta.Name()).Put(schema.ScheduledCompactKeyName, key)
}

// copyIdentity copies what belongs to a member.
func copyIdentity(to, from *bbolt.Tx) error {
	for _, b := range []interface{ Name() []byte }{schema.Members, schema.MembersRemoved, schema.Cluster,
		schema.Alarm} {
		if to.Bucket(b.Name()) != nil {
			if err := to.DeleteBucket(b.Name()); err != nil {
				return err
			}
		}
		bucket, err := to.CreateBucket(b.Name())
		if err != nil {
			return err
		}
		if old := from.Bucket(b.Name()); old != nil {
			if err := old.ForEach(bucket.Put); err != nil {
				return err
			}
		}
	}
	meta, own := to.Bucket(schema.Meta.Name()), from.Bucket(schema.Meta.Name())
	if meta == nil || own == nil {
		return errNoStore
	}
	for _, key := range [][]byte{schema.MetaConsistentIndexKeyName, schema.MetaTermKeyName, schema.MetaConfStateName,
		schema.MetaStorageVersionName} {
		err := meta.Delete(key)
		if value := own.Get(key); value != nil {
			err = meta.Put(key, value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
