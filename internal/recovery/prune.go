package recovery

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

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

// Prune keeps the newest complete backups of each cluster in the directory, keep of each, and those that are damaged.
// It removes the other ones, and the contents of blobs that none of the remaining ones has.
func (d *Dir) Prune(keep int) (p Pruned, err error) {
	if keep < 1 {
		return p, &trivet.FieldError{Field: "--keep", Problem: fmt.Sprintf("is %d; at least 1", keep)}
	}
	all, err := List(d.path)
	if err != nil {
		return p, err
	}
	p = Pruned{Removed: []string{}, Kept: []string{}, Unreadable: []string{}}
	kept, needed := map[string]int{}, map[string]bool{}
	for _, e := range all { // the newest first
		if e.State == Complete {
			if kept[e.Cluster]++; kept[e.Cluster] > keep {
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
	for _, name := range p.Removed {
		if err := os.Remove(filepath.Join(d.path, name)); err != nil {
			return p, explain("prune", d.path, err)
		}
	}
	if err := syncDir(d.path); err != nil || len(p.Unreadable) > 0 {
		return p, explain("prune", d.path, err)
	}
	return p, explain("prune", d.path, d.removeBlobs(&p, needed))
}

// removeBlobs removes the contents that no backup needs. The backups that needed them are gone from the disk.
func (d *Dir) removeBlobs(p *Pruned, needed map[string]bool) error {
	files, err := os.ReadDir(filepath.Join(d.path, blobsDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, f := range files {
		info, err := f.Info()
		if err != nil || !info.Mode().IsRegular() || needed[f.Name()] || !isDigits(f.Name()) {
			continue
		}
		if err := os.Remove(filepath.Join(d.path, blobsDir, f.Name())); err != nil {
			return err
		}
		p.Blobs, p.BlobBytes = p.Blobs+1, p.BlobBytes+info.Size()
	}
	return syncDir(filepath.Join(d.path, blobsDir))
}

// isDigits reports whether a name is that of the content of a blob.
func isDigits(name string) bool {
	_, ok := archive.DigestOf(trivet.BlobRef{Digest: "sha256:" + name})
	return ok
}
