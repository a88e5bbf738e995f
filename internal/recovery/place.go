package recovery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/archive"
	"github.com/trivet-project/trivet/internal/bucket"
)

// The names in a place of backups.
const (
	suffix   = ".backup"
	blobsDir = "blobs" // contents of blobs, by the hex digits of their digests
)

// ErrBusy: another backup or prune uses the place, or this head makes another backup. It is a trivet.ErrConflict.
var ErrBusy = bucket.ErrBusy

// Location is a backup, or where backups are, as an operator names it.
type Location struct {
	Path string        // or s3://BUCKET/PREFIX
	S3   bucket.Config // how a bucket is reached
	// Existing: a directory must exist to be written to; else it is created.
	Existing bool
	// Reserve is how many bytes of the disk of a directory are left free.
	Reserve int64
}

// place is where backups are. The names of its files are NAME.backup and blobs/DIGITS.
type place interface {
	// Path returns the whole name of a file for people, or of the place for "".
	Path(name string) string
	// List returns the files in a directory, "" or blobsDir, with their sizes, or -1 where it is no regular file. A
	// directory blobsDir that does not exist has none.
	List(ctx context.Context, dir string) (map[string]int64, error)
	// Open opens a file to be read until ctx ends. One that does not exist is an fs.ErrNotExist.
	Open(ctx context.Context, name string) (archive.Source, error)
	// Lock makes this process the only one that writes there, and removes what interrupted ones left. It creates a
	// place that does not exist, if create is set.
	Lock(ctx context.Context, create bool) (writer, error)
}

// writer changes a place. No other process does meanwhile: what is partial there is of a process that ended, and blobs
// without a backup are of none that is being made.
type writer interface {
	// Space returns an error where there is no space for so many bytes.
	Space(bytes int64) error
	// Create begins a file of a size. It is there when it is published.
	Create(ctx context.Context, name string, size int64) (newFile, error)
	// Remove removes files. They are gone for good when it returns.
	Remove(ctx context.Context, names []string) error
	Close() error
}

// newFile is a file that is being written.
type newFile interface {
	io.Writer
	// Publish gives the file its name, once it is whole and durable. One of that name is a trivet.ErrExists, unless it
	// is replaced.
	Publish(ctx context.Context, replace bool) error
	// Discard removes what was written, unless it was published.
	Discard()
}

func (l Location) isS3() bool { return strings.HasPrefix(l.Path, bucket.Scheme) }

// Of returns the location of a file below this one.
func (l Location) Of(name string) string {
	if l.isS3() {
		return strings.TrimSuffix(l.Path, "/") + "/" + name
	}
	return filepath.Join(l.Path, name)
}

func (l Location) dir(path string) dir { return dir{path, l.Existing, l.Reserve} }

// place returns the place that a location names.
func (l Location) place() (place, error) {
	if !l.isS3() {
		return l.dir(l.Path), nil
	}
	b, err := bucket.Open(l.Path, l.S3)
	return bucketPlace{b}, err
}

// file returns the place and the name of the backup that a location names.
func (l Location) file() (place, string, error) {
	if !l.isS3() {
		return l.dir(filepath.Dir(l.Path)), filepath.Base(l.Path), nil
	}
	at := strings.LastIndexByte(l.Path, '/')
	path, name := l.Path[:at], l.Path[at+1:]
	if !isOfBackups(name) {
		return nil, "", &trivet.Error{Op: "open", Name: l.Path, Err: archive.ErrNoBackup,
			Hint: "name a file of trivet backup create, NAME.backup"}
	}
	l.Path = path
	p, err := l.place()
	return p, name, err
}

// isFile reports whether a location names a file, and no place.
func (l Location) isFile() (bool, error) {
	if l.isS3() {
		return strings.HasSuffix(l.Path, suffix), nil
	}
	info, err := os.Stat(l.Path)
	return err == nil && !info.IsDir(), err
}

// backup returns the place and the name of the backup that a location names: the file, or the newest complete one of a
// cluster in a place.
func (l Location) backup(ctx context.Context, cluster string) (p place, name string, err error) {
	one, err := l.isFile()
	if err != nil {
		return nil, "", err
	}
	if one {
		return l.file()
	}
	if p, err = l.place(); err != nil {
		return nil, "", err
	}
	name, err = newestIn(ctx, p, cluster)
	return p, name, err
}

// newestIn returns the newest complete backup in a place.
func newestIn(ctx context.Context, p place, cluster string) (name string, err error) {
	all, err := list(ctx, p)
	if err != nil {
		return "", err
	}
	var newest *Entry
	for i, e := range all { // by cluster, the newest first
		switch {
		case e.State != Complete || cluster != "" && e.Cluster != cluster:
		case newest == nil:
			newest = &all[i]
		case newest.Cluster != e.Cluster:
			return "", &trivet.Error{Op: "choose the newest backup", Name: p.Path(""),
				Hint: "name the file, or pass --cluster ID",
				Err: fmt.Errorf("%w: it has backups of several clusters: %s and %s", trivet.ErrConflict, newest.Cluster,
					e.Cluster)}
		}
	}
	if newest == nil {
		return "", &trivet.Error{Op: "choose the newest backup", Name: p.Path(""),
			Err:  fmt.Errorf("%w: it has no complete backup%s", trivet.ErrNotFound, ofCluster(cluster)),
			Hint: "to see what is there: trivet backup list --in " + p.Path("")}
	}
	return newest.Name, nil
}

func ofCluster(cluster string) string {
	if cluster == "" {
		return ""
	}
	return " of cluster " + cluster
}

// withLock calls do while no other process writes to a place.
func withLock(ctx context.Context, l Location, create bool, do func(p place, w writer) error) error {
	p, err := l.place()
	if err != nil {
		return err
	}
	w, err := p.Lock(ctx, create)
	if err != nil {
		return explain("open the directory of backups", p.Path(""), err)
	}
	return errors.Join(do(p, w), w.Close())
}
