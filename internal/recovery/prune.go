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

// Keep is which backups Prune keeps.
type Keep struct {
	Newest  int    // how many complete ones of each cluster
	Cluster string // all of other clusters; empty: none
	Name    string // this one, too
}

// Prune keeps the newest complete backups of each cluster at a location, and those that are damaged. It removes the
// other ones, and the contents of blobs that none of the remaining ones has.
func Prune(ctx context.Context, in Location, keep Keep) (p Pruned, err error) {
	if keep.Newest < 1 {
		return p, &trivet.FieldError{Field: "--keep", Problem: fmt.Sprintf("is %d; at least 1", keep.Newest)}
	}
	err = withLock(ctx, in, false, func(from place, w writer) error {
		all, err := list(ctx, from)
		if err != nil {
			return err
		}
		p = Pruned{Removed: []string{}, Kept: []string{}, Unreadable: []string{}}
		needed := p.choose(all, keep)
		if err = w.Remove(ctx, p.Removed); err == nil && len(p.Unreadable) == 0 {
			err = p.removeBlobs(ctx, from, w, needed)
		}
		return explain("prune", from.Path(""), err)
	})
	return p, err
}

// choose decides which backups are removed, and returns the digits of the blobs that the other ones need.
func (p *Pruned) choose(all []Entry, keep Keep) (needed map[string]bool) {
	needed = map[string]bool{}
	kept := map[string]int{}
	for _, e := range all { // the newest first
		if e.State == Complete {
			kept[e.Cluster]++
			other := keep.Cluster != "" && e.Cluster != keep.Cluster
			if kept[e.Cluster] > keep.Newest && !other && e.Name != keep.Name {
				p.Removed = append(p.Removed, e.Name)
				continue
			}
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
