package cluster

import (
	"context"
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
	if err := adopt(restored, own); err != nil {
		return fmt.Errorf("%w: %w", trivet.ErrInvalid, err)
	}
	if err := os.Rename(restored, own); err != nil {
		return err
	}
	return syncDir(filepath.Dir(own))
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

// adopt gives the database in one file what belongs to the member whose database is the other one.
func adopt(restored, own string) error {
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
			if _, err := lastRevision(tx); err != nil {
				return err
			}
			return copyIdentity(tx, own)
		})
	})
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
