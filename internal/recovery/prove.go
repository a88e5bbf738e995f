package recovery

import (
	"context"
	"fmt"
	"os"

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
	// Proven is the name of the last backup in the same place that was proven; empty: none. The contents of its blobs
	// were read then, and are not read again.
	Proven string
	// Temp is a directory of its own for the restored store. What a former proof left there is removed.
	Temp string
	// Reserve is how many bytes of the disk of Temp are left free.
	Reserve int64
}

// Prove proves that a backup can be restored, as Verify does, with the keys of the cluster in place of those in the
// backup, which only the recovery key opens: that they are what the head encrypted is known by their digest.
func Prove(ctx context.Context, p Proof) (r Report, err error) {
	if err := os.RemoveAll(p.Temp); err != nil {
		return r, err
	}
	if err := os.MkdirAll(p.Temp, 0o700); err != nil {
		return r, err
	}
	defer os.RemoveAll(p.Temp)
	keys, err := auth.ParseBundle(p.Keys)
	if err != nil {
		return r, err
	}
	at, _, err := p.Backup.file()
	if err != nil {
		return r, err
	}
	known, err := provenBlobs(ctx, at, p.Proven, keys)
	if err != nil {
		return r, explain("verify", at.Path(p.Proven), err)
	}
	v := &verification{temp: p.Temp, reserve: p.Reserve,
		open:  func(f *archive.File) (*auth.Keys, HeadConfig, error) { return keys, HeadConfig{}, p.check(f, keys) },
		reads: func(b trivet.BlobRef) bool { return !known[b.Digest] }}
	return v.run(ctx, p.Backup)
}

// check proves that one of the heads made the file, and that its keys are what they encrypted.
func (p *Proof) check(f *archive.File, keys *auth.Keys) error {
	if f.Cluster != keys.CA.Cluster() {
		return fmt.Errorf("%w: it is of cluster %.40q", archive.ErrDamaged, f.Cluster)
	}
	if f.Recipient != p.Recipient {
		return fmt.Errorf("%w: it needs another recovery key than the site's: %.80q", archive.ErrDamaged, f.Recipient)
	}
	if err := madeBy(f, keys); err != nil {
		return err
	}
	_, err := f.KeysPart() // as long as the manifest says, with the digest that is there
	return err
}

// madeBy proves that a full head of a cluster made a file: with the first of its store's keys then, which another one
// may precede now.
func madeBy(f *archive.File, keys *auth.Keys) (err error) {
	for _, key := range keys.Ring(trivet.StoreKey).Keys() {
		if err = f.Verify(key.MAC); err == nil {
			return nil
		}
	}
	return err
}
