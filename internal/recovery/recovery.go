// Package recovery makes backups of a cluster and proves that they can be restored.
//
// A backup is a file (see internal/archive) with a snapshot of the store and the keys of the cluster, in a directory
// with other backups. A subdirectory has the contents of blobs, which all backups of the directory share. A head
// makes the file (source.go) and sends it to the operator's program, which writes it, with the blobs (create.go). The
// keys are encrypted to the recovery key (key.go, sealed.go), whose secret part is on no head.
package recovery

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/archive"
)

// explain adds to the error of a file or directory what to do next.
func explain(op, name string, err error) error {
	if err == nil {
		return nil
	}
	var detailed *trivet.Error
	if errors.As(err, &detailed) && detailed.Hint != "" {
		return err
	}
	e := &trivet.Error{Op: op, Name: name, Err: err}
	switch {
	case errors.Is(err, archive.ErrNewer):
		e.Hint = "use that version of trivet, or a later one"
	case errors.Is(err, archive.ErrNoBackup):
		e.Hint = "name a file of trivet backup create, NAME.backup"
	case errors.Is(err, archive.ErrTruncated), errors.Is(err, archive.ErrDamaged):
		e.Hint = "it cannot be restored: use another backup, or an intact copy of this one"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		e.Hint = "free some space there, or use another directory"
	case errors.Is(err, fs.ErrPermission):
		e.Hint = "use a directory that this user may read and write"
	case errors.Is(err, fs.ErrNotExist):
		e.Err, e.Hint = fmt.Errorf("%w: %w", trivet.ErrNotFound, err), "check the path"
	}
	return e
}
