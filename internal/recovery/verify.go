package recovery

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/archive"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// Report is what Verify found in a backup.
type Report struct {
	Entry
	// Values is how many values of the store were decrypted, and Records how many records of each kind are among them.
	Values  int            `json:"values"`
	Records map[string]int `json:"records"`
	// Checked is how many blobs' contents were read and have their digests.
	Checked int `json:"checked"`
	// Problems are what a restored cluster would lack, at most MaxProblems; Found is how many there are.
	Problems []string `json:"problems"`
	Found    int      `json:"found"`
	// Bad are the digits of the blobs whose saved contents do not have their digests.
	Bad []string `json:"bad,omitempty"`
	// Head is how the head was started that made it.
	Head HeadConfig `json:"head"`
}

// MaxProblems bounds the problems of a report.
const MaxProblems = 100

func (r *Report) add(format string, args ...any) {
	if r.Found++; r.Found <= MaxProblems {
		r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
	}
}

// Verify proves that a backup can be restored: it restores the store into a temporary directory below temp ("": that
// of the system), decrypts every value, decodes and validates every record, and reads the contents of its blobs. An
// error means that the backup cannot be used at all.
func Verify(ctx context.Context, backup Location, key *Key, temp string, progress Progress) (r Report, err error) {
	v := &verification{temp: temp, progress: progress,
		open:  func(f *archive.File) (*auth.Keys, HeadConfig, error) { return openKeys(f, key) },
		reads: func(trivet.BlobRef) bool { return true }}
	return v.run(ctx, backup)
}

// verification is how a backup is verified.
type verification struct {
	open     func(*archive.File) (*auth.Keys, HeadConfig, error)
	reads    func(trivet.BlobRef) bool // whether the content of a blob is read, where it was saved
	temp     string
	reserve  int64 // how many bytes of the disk of temp are left free
	progress Progress
}

func (v *verification) run(ctx context.Context, backup Location) (r Report, err error) {
	p, name, err := backup.file()
	if err != nil {
		return r, err
	}
	saved, err := p.List(ctx, blobsDir)
	if err != nil {
		return r, explain("verify", p.Path(blobsDir), err)
	}
	r = Report{Records: map[string]int{}, Problems: []string{}}
	if r.Entry, err = entryOf(ctx, p, name, saved); err != nil {
		return r, explain("verify", p.Path(name), err)
	}
	return r, explain("verify", p.Path(name), v.verify(ctx, p, &r, saved))
}

func (v *verification) verify(ctx context.Context, p place, r *Report, saved map[string]int64) error {
	f, err := openArchive(ctx, p, r.Name)
	if err != nil {
		return err
	}
	defer f.Close()
	keys, head, err := v.open(f)
	if err != nil {
		return err
	}
	r.Head = head
	if err := v.restored(ctx, f, keys, r.check); err != nil {
		return err
	}
	return v.checkBlobs(ctx, f, p, r, saved)
}

// openKeys returns the keys in a backup, and proves that a head of the cluster of these keys made it.
func openKeys(f *archive.File, key *Key) (keys *auth.Keys, head HeadConfig, err error) {
	if f.Release.Compare(trivet.CurrentRelease) > 0 {
		return nil, head, fmt.Errorf("%w: its records use release %s, and this version knows %s", archive.ErrNewer,
			f.Release, trivet.CurrentRelease)
	}
	if err := key.opens(f.Cluster, f.Recipient); err != nil {
		return nil, head, err
	}
	box, err := f.KeysPart()
	if err != nil {
		return nil, head, err
	}
	kept, err := key.unseal(box)
	if err != nil {
		return nil, head, err
	}
	if keys, err = auth.ParseBundle(kept.Keys); err != nil {
		return nil, head, fmt.Errorf("%w: its keys: %w", archive.ErrDamaged, err)
	}
	if err := f.Verify(macOf(keys)); err != nil {
		return nil, head, err
	}
	if keys.CA.Cluster() != f.Cluster {
		return nil, head, fmt.Errorf("%w: its keys are of another cluster", archive.ErrDamaged)
	}
	return keys, kept.Head, key.trusts(keys.CA)
}

// restored calls do with the store of a backup, which is restored in a temporary directory until do has returned.
func (v *verification) restored(ctx context.Context, f *archive.File, keys *auth.Keys,
	do func(context.Context, *state.Tables) error) (err error) {
	dir, err := os.MkdirTemp(v.temp, "trivet-verify-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := checkSpace(dir, f.Store.Bytes+cluster.RestoreSpace+v.reserve); err != nil {
		return err
	}
	cfg := cluster.Config{Dir: filepath.Join(dir, "store"), Name: "verify", Token: f.Cluster, Reserve: -1}
	m := &meter{progress: v.progress, name: "store", total: f.Store.Bytes}
	if err := cluster.Restore(ctx, cfg, m.of(f.StorePart())); err != nil {
		return err
	}
	member, err := cluster.Start(ctx, cfg)
	if err != nil {
		return err
	}
	defer member.Close()
	s := store.New(member.Client(), store.Options{Head: cfg.Name, Cipher: keys.Values(),
		Logger: slog.New(slog.DiscardHandler)})
	tables := state.New(s)
	if err := s.Start(ctx); errors.Is(err, store.ErrRefused) { // its hint is for a head
		return fmt.Errorf("%w: its keys are not those of its store", archive.ErrDamaged)
	} else if err != nil {
		return err
	}
	defer s.Close()
	return do(ctx, tables)
}

// checkBlobs reads the contents of the blobs that were saved. Of those that are not to be read it checks the sizes.
func (v *verification) checkBlobs(ctx context.Context, f *archive.File, p place, r *Report,
	saved map[string]int64) error {
	for _, b := range f.Blobs {
		if !v.reads(b) {
			if f.Contents && !isSaved(saved, b) {
				r.add("the content of blob %s is missing", b.Digest)
			}
			continue
		}
		err := checkBlob(ctx, p, b, v.progress)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case isOfServer(err):
			return err
		case err == nil:
			r.Checked++
		case errors.Is(err, fs.ErrNotExist) && !f.Contents: // it was made without them
		case errors.Is(err, fs.ErrNotExist):
			r.add("the content of blob %s is missing", b.Digest)
		default:
			digits, _ := archive.DigestOf(b)
			r.Bad = append(r.Bad, digits)
			r.add("the content of blob %s: %s", b.Digest, problemOf(err))
		}
	}
	return nil
}

func checkBlob(ctx context.Context, p place, b trivet.BlobRef, progress Progress) error {
	digits, _ := archive.DigestOf(b) // the manifest is valid
	f, err := p.Open(ctx, blobName(digits))
	if err != nil {
		return err
	}
	defer f.Close()
	sum, m := sha256.New(), &meter{progress: progress, name: b.Digest, total: b.Bytes}
	n, err := io.Copy(sum, untilDone{ctx, m.of(f.Range(0, f.Size()))})
	if err == nil && (n != b.Bytes || hex.EncodeToString(sum.Sum(nil)) != digits) {
		err = fmt.Errorf("%w: it does not have that digest", trivet.ErrInvalid)
	}
	return err
}

// untilDone is a reader that fails when a context has ended.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (u untilDone) Read(b []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.r.Read(b)
}
