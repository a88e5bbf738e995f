package recovery

import (
	"context"
	"fmt"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/archive"
)

// Pruned is what Prune removed.
type Pruned struct {
	Removed   []string `json:"removed"` // names of backups
	Kept      []string `json:"kept"`
	Blobs     int      `json:"blobs"`     // contents that were removed
	BlobBytes int64    `json:"blobBytes"` // and their size
	// Unreadable are files of backups whose blobs are not known: while there are any, no content is removed.
	Unreadable []string `json:"unreadable"`
}

// Prune keeps the newest complete backups of each cluster at a location, keep of each, and those that are damaged. It
// removes the other ones, and the contents of blobs that none of the remaining ones has.
func Prune(ctx context.Context, in Location, keep int) (p Pruned, err error) {
	if keep < 1 {
		return p, &trivet.FieldError{Field: "--keep", Problem: fmt.Sprintf("is %d; at least 1", keep)}
	}
	kept := map[string]int{}
	return prune(ctx, in, nil, func(e *Entry) bool {
		if e.State != Complete {
			return true
		}
		kept[e.Cluster]++
		return kept[e.Cluster] <= keep
	})
}

// prune removes the backups at a location that keep, which is asked for each cluster from the newest one on, reports
// false of, with the contents of blobs that none of the remaining ones has, and those with the digits in damaged.
func prune(ctx context.Context, in Location, damaged []string, keep func(e *Entry) bool) (p Pruned, err error) {
	err = withLock(ctx, in, false, func(from place, w writer) error {
		all, err := list(ctx, from)
		if err != nil {
			return err
		}
		p = Pruned{Removed: []string{}, Kept: []string{}, Unreadable: []string{}}
		needed := p.choose(all, keep)
		for _, digits := range damaged {
			delete(needed, digits)
		}
		if err = w.Remove(ctx, p.Removed); err == nil && len(p.Unreadable) == 0 {
			err = p.removeBlobs(ctx, from, w, needed)
		}
		return explain("prune", from.Path(""), err)
	})
	return p, err
}

// choose decides which backups are removed, and returns the digits of the blobs that the other ones need.
func (p *Pruned) choose(all []Entry, keep func(e *Entry) bool) (needed map[string]bool) {
	needed = map[string]bool{}
	for _, e := range all { // the newest first
		if !keep(&e) {
			p.Removed = append(p.Removed, e.Name)
			continue
		}
		p.Kept = append(p.Kept, e.Name)
		if e.Cluster == "" {
			p.Unreadable = append(p.Unreadable, e.Name)
		}
		for _, digits := range e.blobs {
			needed[digits] = true
		}
	}
	return needed
}

// removeBlobs removes the contents that no backup needs. The backups that needed them are gone for good.
func (p *Pruned) removeBlobs(ctx context.Context, from place, w writer, needed map[string]bool) error {
	saved, err := from.List(ctx, blobsDir)
	if err != nil {
		return err
	}
	var names []string
	for name, size := range saved {
		if size >= 0 && !needed[name] && isDigits(name) {
			names = append(names, blobName(name))
			p.Blobs, p.BlobBytes = p.Blobs+1, p.BlobBytes+size
		}
	}
	return w.Remove(ctx, names)
}

// isDigits reports whether a name is that of the content of a blob.
func isDigits(name string) bool {
	_, ok := archive.DigestOf(trivet.BlobRef{Digest: "sha256:" + name})
	return ok
}
