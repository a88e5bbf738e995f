package recovery

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/archive"
)

// Entry is one backup in a directory. The states are by its manifest and size; Verify reads the rest.
type Entry struct {
	Name     string    `json:"name"`
	State    string    `json:"state"`
	Problem  string    `json:"problem,omitempty"`
	Cluster  string    `json:"cluster,omitempty"`
	Version  string    `json:"version,omitempty"`
	Time     time.Time `json:"time,omitzero"`
	Revision int64     `json:"revision,omitempty"`
	Bytes    int64     `json:"bytes,omitempty"`
	// Recipient is the public part of the recovery key that it needs.
	Recipient string `json:"recipient,omitempty"`
	// Contents: it was made with the contents of its blobs. Missing of them are not there.
	Contents  bool  `json:"contents"`
	Blobs     int   `json:"blobs"`
	BlobBytes int64 `json:"blobBytes"`
	Missing   int   `json:"missing"`

	blobs []string      // digits of their digests
	file  *archive.File // closed, for its manifest; nil where that cannot be read
}

// The states of a backup.
const (
	Complete = "complete"
	Damaged  = "damaged" // or it lacks contents that it was made with
)

// List returns the backups at a location, by cluster, the newest first: by their revisions, as the clocks of heads may
// be wrong. Those that are being made are not listed.
func List(ctx context.Context, in Location) ([]Entry, error) {
	p, err := in.place()
	if err != nil {
		return nil, err
	}
	return list(ctx, p)
}

func list(ctx context.Context, p place) ([]Entry, error) {
	files, err := p.List(ctx, "")
	if err != nil {
		return nil, explain("list backups", p.Path(""), err)
	}
	saved, err := p.List(ctx, blobsDir)
	if err != nil {
		return nil, explain("list backups", p.Path(blobsDir), err)
	}
	all := []Entry{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, suffix) {
			e, err := entryOf(ctx, p, name, saved)
			if err != nil {
				return nil, explain("list backups", p.Path(name), err)
			}
			all = append(all, e)
		}
	}
	slices.SortStableFunc(all, func(a, b Entry) int {
		return cmp.Or(strings.Compare(a.Cluster, b.Cluster), cmp.Compare(b.Revision, a.Revision),
			b.Time.Compare(a.Time))
	})
	return all, nil
}

// entryOf describes the backup in a file. saved are the files of blobsDir. It fails where nothing can be known of the
// file.
func entryOf(ctx context.Context, p place, name string, saved map[string]int64) (Entry, error) {
	e := Entry{Name: name, State: Complete}
	f, err := openArchive(ctx, p, name)
	if isOfServer(err) {
		return e, err
	}
	if err != nil {
		e.State, e.Problem = Damaged, problemOf(err)
		return e, nil
	}
	defer f.Close()
	e.file = f
	e.Cluster, e.Version, e.Time, e.Revision = f.Cluster, f.Version, f.Time, f.Revision
	e.Bytes, e.Recipient, e.Contents = f.Size(), f.Recipient, f.Contents
	for _, b := range f.Blobs {
		digits, _ := archive.DigestOf(b)
		e.blobs = append(e.blobs, digits)
		e.Blobs, e.BlobBytes = e.Blobs+1, e.BlobBytes+b.Bytes
		if f.Contents && !isSaved(saved, b) {
			e.Missing++
		}
	}
	if e.Missing > 0 {
		e.State, e.Problem = Damaged, "contents of blobs are missing in "+blobsDir
	}
	return e, nil
}

// isOfServer reports whether an error is that of a server, or of this command, and none of what is stored.
func isOfServer(err error) bool {
	return errors.Is(err, trivet.ErrUnavailable) || errors.Is(err, trivet.ErrUnauthenticated) ||
		errors.Is(err, trivet.ErrForbidden) || errors.Is(err, context.Canceled)
}

// openArchive opens the file of a backup.
func openArchive(ctx context.Context, p place, name string) (*archive.File, error) {
	from, err := p.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return archive.Open(from)
}

// problemOf returns an error without its kind.
func problemOf(err error) string {
	text := err.Error()
	if errors.Is(err, trivet.ErrInvalid) {
		text = strings.TrimPrefix(text, trivet.ErrInvalid.Error()+": ")
	}
	return text
}
