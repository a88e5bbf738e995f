package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
)

// dataFormat is the form of the data folder. It is raised when an older version of this program could no longer read it.
const dataFormat = 1

// dataFile is DATA-DIR/head.json: whose data it is, and of which form. It is written at the end of the first start, so a
// folder without it is new, or one whose first start did not come to its end.
type dataFile struct {
	Format  int    `json:"format"`
	Name    string `json:"name"`    // the head's
	Version string `json:"version"` // of the program that wrote last
}

func (d dataFile) isNew() bool { return d.Format == 0 }

// maxDataFile bounds the file, in bytes.
const maxDataFile = 64 << 10

func (s *Server) dataPath() string { return filepath.Join(s.cfg.Dir, "head.json") }

// openData makes sure that the data folder can be used, and by this head.
func (s *Server) openData(context.Context) error {
	if err := usable(s.cfg.Dir); err != nil {
		return &trivet.Error{Op: "open data folder", Name: s.cfg.Dir, Err: fmt.Errorf("%w: %w", trivet.ErrUnavailable, err),
			Hint: "give a folder that this user can write, with --data-dir"}
	}
	d, err := readData(s.dataPath())
	if err != nil {
		return &trivet.Error{Op: "open data folder", Name: s.cfg.Dir, Err: err, Hint: "put a backup of " + s.dataPath() + " in its place"}
	}
	s.data = d
	switch name := cmp.Or(s.cfg.Name, d.Name, DefaultName); {
	case d.Format > dataFormat:
		return &trivet.Error{Op: "open data folder", Name: s.cfg.Dir, Hint: "run that version of trivet, or a newer one",
			Err: fmt.Errorf("%w: version %s wrote it in format %d; this is %s, which reads up to %d", trivet.ErrInvalid, d.Version, d.Format, s.cfg.Version, dataFormat)}
	case !d.isNew() && name != d.Name:
		return &trivet.Error{Op: "open data folder", Name: s.cfg.Dir, Hint: "leave --name out, or give this head a folder of its own with --data-dir",
			Err: fmt.Errorf("%w: it is of head %s, not of %s", trivet.ErrConflict, d.Name, name)}
	default:
		s.cfg.Name = name
	}
	return trivet.ValidateName(s.cfg.Name)
}

// usable says why a folder cannot be written; one that is not there is made.
func usable(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return &fs.PathError{Op: "write", Path: dir, Err: err}
	}
	return nil
}

func readData(path string) (d dataFile, err error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	}
	if err == nil && info.Size() > maxDataFile {
		err = fmt.Errorf("%w: %d bytes", trivet.ErrTooLarge, info.Size())
	}
	if err != nil {
		return d, err
	}
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err != nil || d.Format < 1 || trivet.ValidateName(d.Name) != nil {
		return dataFile{}, fmt.Errorf("%w: %s is damaged: %v", trivet.ErrInvalid, path, err)
	}
	return d, nil
}

// keepData notes whose the folder is.
func (s *Server) keepData() error {
	now := dataFile{Format: dataFormat, Name: s.cfg.Name, Version: s.cfg.Version}
	if now == s.data {
		return nil
	}
	text, err := json.Marshal(now)
	if err != nil {
		return err
	}
	if err := renameio.WriteFile(s.dataPath(), append(text, '\n'), 0o600); err != nil {
		return &trivet.Error{Op: "write", Name: s.dataPath(), Err: fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)}
	}
	s.data = now
	return nil
}
