package recovery

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/archive"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/state"
)

// Source makes backups on a full head, one at a time. Create it by NewSource.
type Source struct {
	cfg  SourceConfig
	busy chan struct{}
}

// SourceConfig is what a backup is made of.
type SourceConfig struct {
	// Dir is a directory for the copy of the store, on a disk that has room for it.
	Dir     string
	Member  *cluster.Member
	Tables  *state.Tables
	Keys    *auth.Keys
	Version string
	Head    func() HeadConfig
}

// NewSource returns the source of the backups of this head.
func NewSource(cfg SourceConfig) *Source { return &Source{cfg: cfg, busy: make(chan struct{}, 1)} }

// Recipient returns the public part of the recovery key, or an error that says how to create it.
func (s *Source) Recipient() (string, error) {
	site, err := s.cfg.Tables.Sites.Get(trivet.SiteName)
	if err != nil {
		return "", err
	}
	if site.Spec.RecoveryKey == "" {
		return "", &trivet.Error{Op: "back up", Hint: "create it first: trivet backup key",
			Err: fmt.Errorf("%w: the site has no recovery key", trivet.ErrConflict)}
	}
	return site.Spec.RecoveryKey, CheckRecipient(site.Spec.RecoveryKey)
}

// Backup is a backup that was made and is to be sent. Close it.
type Backup struct {
	archive.Manifest
	head, keys []byte
	bundle     auth.Bundle
	store      *cluster.Snapshot
	done       func()
}

// Begin makes a backup of all that was acknowledged before the call, by any head. contents says that its receiver
// saves the contents of the blobs, too. schedule is the UID of the schedule that it is made by; empty: none.
func (s *Source) Begin(ctx context.Context, contents bool, schedule string) (*Backup, error) {
	recipient, err := s.Recipient()
	if err != nil {
		return nil, err
	}
	select {
	case s.busy <- struct{}{}:
	default:
		return nil, &trivet.Error{Op: "back up", Hint: "wait until that one is complete",
			Err: fmt.Errorf("%w: this head is making another backup", ErrBusy)}
	}
	b := &Backup{done: func() { <-s.busy }}
	b.Manifest = archive.Manifest{Cluster: s.cfg.Keys.CA.Cluster(), Version: s.cfg.Version, Head: s.cfg.Head().Name,
		Time: time.Now().UTC().Truncate(time.Second), Recipient: recipient, Contents: contents,
		Schedule: schedule}
	if err = s.copyStore(ctx, b); err == nil {
		err = s.sealKeys(b)
	}
	if err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// copyStore copies the store, and adds what the records refer to. Blobs that a record referred to before the copy are
// among those that the copy has records of, or of records that were deleted meanwhile.
func (s *Source) copyStore(ctx context.Context, b *Backup) (err error) {
	if err := s.cfg.Tables.Store.Sync(ctx); err != nil {
		return err
	}
	blobs := s.blobs()
	b.bundle = s.cfg.Keys.Bundle()
	if b.store, err = s.cfg.Member.Snapshot(ctx, s.cfg.Dir); err != nil {
		return err
	}
	if err := s.cfg.Tables.Store.WaitRevision(ctx, b.store.Revision); err != nil {
		return err
	}
	if !maps.EqualFunc(b.bundle, s.cfg.Keys.Bundle(), bytes.Equal) {
		return &trivet.Error{Op: "back up", Hint: "try again; to see the rotation: trivet key list",
			Err: fmt.Errorf("%w: the key of the store was replaced meanwhile", trivet.ErrConflict)}
	}
	maps.Copy(blobs, s.blobs())
	for _, digest := range slices.Sorted(maps.Keys(blobs)) {
		b.Blobs = append(b.Blobs, blobs[digest])
	}
	if site, err := s.cfg.Tables.Sites.Get(trivet.SiteName); err == nil {
		b.Release = site.Status.ClusterVersion
		b.Incarnation = incarnationOf(site)
	}
	b.Revision = b.store.Revision
	b.Store = archive.Part{Bytes: b.store.Bytes, SHA256: b.store.SHA256}
	return nil
}

// incarnationOf returns that of a cluster; empty for one that was never recovered.
func incarnationOf(site *trivet.Site) string {
	if site.Status.Recovered == nil {
		return ""
	}
	return site.Status.Recovered.Incarnation
}

// blobs returns the blobs that records refer to, by digest.
func (s *Source) blobs() map[string]trivet.BlobRef {
	all := map[string]trivet.BlobRef{}
	for use := range s.cfg.Tables.BlobUses() {
		all[use.Ref.Digest] = use.Ref
	}
	return all
}

// sealKeys adds the keys and the header.
func (s *Source) sealKeys(b *Backup) (err error) {
	kept := secrets{Keys: b.bundle, Head: s.cfg.Head()}
	keys, err := auth.ParseBundle(b.bundle)
	if err != nil {
		return err
	}
	if b.keys, err = kept.seal(b.Recipient); err != nil {
		return err
	}
	sum := sha256.Sum256(b.keys)
	b.Keys = archive.Part{Bytes: int64(len(b.keys)), SHA256: hex.EncodeToString(sum[:])}
	b.head, err = archive.Header(&b.Manifest, macOf(keys))
	return err
}

// macOf returns what authenticates the manifests of a cluster.
func macOf(keys *auth.Keys) archive.MAC {
	ring := keys.Ring(trivet.StoreKey)
	return ring.First().MAC
}

// Bundle returns the keys that are in the backup. They are secret.
func (b *Backup) Bundle() auth.Bundle { return b.bundle }

// Size returns the size of the file.
func (b *Backup) Size() int64 { return int64(len(b.head)) + b.Keys.Bytes + b.Store.Bytes }

// Reader reads the file, once.
func (b *Backup) Reader() io.Reader {
	return io.MultiReader(bytes.NewReader(b.head), bytes.NewReader(b.keys), b.store.File)
}

// WriteTo writes the file, in place of Reader.
func (b *Backup) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, b.Reader()) }

// Close releases what the backup uses. Another one may be made then.
func (b *Backup) Close() {
	if b.store != nil {
		b.store.File.Close()
	}
	b.done()
}
