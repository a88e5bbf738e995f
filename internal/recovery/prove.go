package recovery

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/archive"
	"github.com/trivet-project/trivet/internal/auth"
)

// Proof is what a head proves that it has made a backup which can be restored. It has secrets.
type Proof struct {
	Backup Location
	// Keys are those of the cluster: a head does not have the recovery key.
	Keys auth.Bundle
	// Recipient is the public part of the recovery key that must open the keys in the backup.
	Recipient string
	// New are the digests of the blobs whose contents are read. Those of others were read when they were new.
	New []string
	// Temp is a directory of its own for the restored store. What a former proof left there is removed.
	Temp string
	// Reserve is how many bytes of the disk of Temp are left free.
	Reserve int64
}

// Prove proves that a backup can be restored, as Verify does, with the keys of the cluster in place of those in the
// backup, which only the recovery key opens: that they are what the head encrypted is known by their digest.
func Prove(ctx context.Context, p Proof) (Report, error) {
	if err := os.RemoveAll(p.Temp); err != nil {
		return Report{}, err
	}
	if err := os.MkdirAll(p.Temp, 0o700); err != nil {
		return Report{}, err
	}
	defer os.RemoveAll(p.Temp)
	v := &verification{temp: p.Temp, open: p.open, reserve: p.Reserve,
		reads: func(b trivet.BlobRef) bool { return slices.Contains(p.New, b.Digest) }}
	return v.run(ctx, p.Backup)
}

// open returns the keys of the cluster, and proves that one of its heads made the file.
func (p *Proof) open(f *archive.File) (*auth.Keys, HeadConfig, error) {
	keys, err := auth.ParseBundle(p.Keys)
	if err != nil {
		return nil, HeadConfig{}, err
	}
	switch {
	case f.Cluster != keys.CA.Cluster():
		err = fmt.Errorf("%w: it is of cluster %.40q", archive.ErrDamaged, f.Cluster)
	case f.Recipient != p.Recipient:
		err = fmt.Errorf("%w: it needs another recovery key than the site's: %.80q", archive.ErrDamaged, f.Recipient)
	default:
		err = madeBy(f, keys)
	}
	if err == nil {
		_, err = f.KeysPart() // as long as the manifest says, with the digest that is there
	}
	return keys, HeadConfig{}, err
}

// madeBy proves that a full head of a cluster made a file: with the first of its store's keys then, which another one
// may precede now.
func madeBy(f *archive.File, keys *auth.Keys) (err error) {
	for _, key := range keys.Store().Keys() {
		if err = f.Verify(key.MAC); err == nil {
			return nil
		}
	}
	return err
}
