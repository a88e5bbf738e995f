package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
)

// dataFormat is the form of the data folder. It is raised when an older version of this program could no longer read it.
// Format 1 is of a head that is alone: version 0.1 reads it, and knows of no others.
const dataFormat = 2

// dataFile is DATA-DIR/head.json: who this head is, and of which form its data are. Where it is, the keys are as well.
type dataFile struct {
	Format  int    `json:"format"`
	Name    string `json:"name"` // the head's
	Role    string `json:"role,omitempty"`
	Version string `json:"version"` // of the program that wrote last
	// Token is the ID of the token by which it joined; empty for the first head of a cluster.
	Token string `json:"token,omitempty"`
	// Member is the ID of its member of the store, URL where the others were last told to reach it, and Peers are all members
	// as it last knew them: whom it asks at a start whether it is one still.
	Member string         `json:"member,omitempty"`
	URL    string         `json:"url,omitempty"`
	Peers  []cluster.Peer `json:"peers,omitempty"`
	// Started: a start of this head has come to its end, so there is a store.
	Started bool `json:"started,omitempty"`
}

func (d *dataFile) witness() bool { return d.Role == trivet.RoleWitness }

func (d *dataFile) isNew() bool { return !d.Started }

// format is the lowest that this is.
func (d *dataFile) format() int {
	if d.Token == "" && len(d.Peers) <= 1 {
		return 1
	}
	return dataFormat
}

// maxDataFile bounds the file, in bytes.
const maxDataFile = 64 << 10

func (s *Server) dataPath() string { return s.path("head.json") }

// openData makes sure that the data folder can be used, and by this head.
func (s *Server) openData(context.Context) error {
	if err := usable(s.cfg.Dir); err != nil {
		return &trivet.Error{Op: "open data folder", Name: s.cfg.Dir, Err: fmt.Errorf("%w: %w", trivet.ErrUnavailable, err),
			Hint: "give a folder that this user can write, with --data-dir"}
	}
	if err := cluster.CheckNotRunning(s.path("store")); err != nil { // a second start is told as that, before anything else
		return err
	}
	if err := cluster.CheckStartSpace(s.cfg.Dir); err != nil {
		return err
	}
	d, err := readData(s.dataPath())
	if err != nil {
		return &trivet.Error{Op: "open data folder", Name: s.cfg.Dir, Err: err, Hint: "put a backup of " + s.dataPath() + " in its place"}
	}
	s.data = d
	switch name := cmp.Or(s.cfg.Name, d.Name, DefaultName); {
	case d.Format == 0 && len(s.cfg.Join) > 0 && s.cfg.Name != "":
		return &trivet.FieldError{Field: "--name", Problem: "cannot be given with --join: the cluster names its heads"}
	case d.Format > dataFormat:
		return &trivet.Error{Op: "open data folder", Name: s.cfg.Dir, Hint: "run that version of trivet, or a newer one",
			Err: fmt.Errorf("%w: version %s wrote it in format %d; this is %s, which reads up to %d", trivet.ErrInvalid, d.Version, d.Format, s.cfg.Version, dataFormat)}
	case d.Format != 0 && name != d.Name:
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
	if d.Role == "" { // version 0.1 wrote the file at the end of the first start, of a voter
		d.Role, d.Started = trivet.RoleVoter, true
	}
	return d, nil
}

// keepData writes down who this head is, if that has changed.
func (s *Server) keepData() error {
	s.data.Version, s.data.Format = s.cfg.Version, s.data.format()
	text, err := json.Marshal(s.data)
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if old, err := os.ReadFile(s.dataPath()); err == nil && bytes.Equal(old, text) {
		return nil
	}
	if err := renameio.WriteFile(s.dataPath(), text, 0o600); err != nil {
		return &trivet.Error{Op: "write", Name: s.dataPath(), Err: fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)}
	}
	return nil
}
