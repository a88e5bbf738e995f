package membership

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
)

// dataFormat is the format of the data directory. It is raised when an older version of this program could no longer
// read it.
const dataFormat = 3

// dataFile is DATA-DIR/head.json: the identity of this head and the format of its data. Where it exists, the keys do
// as well.
type dataFile struct {
	Format  int    `json:"format"`
	Name    string `json:"name"` // of the head
	Role    string `json:"role"`
	Version string `json:"version"` // of the program that wrote it last
	// Token is the ID of the token by which it joined; empty for the first head of a cluster.
	Token string `json:"token,omitempty"`
	// Member is the ID of its member of the store, URL where the others reach it as far as they know, and Peers are
	// all members that it knew last, by which it verifies its membership at the next start.
	Member string         `json:"member,omitempty"`
	URL    string         `json:"url,omitempty"`
	Peers  []cluster.Peer `json:"peers,omitempty"`
	// Incarnation is that of the cluster: see [trivet.Recovered]; empty where it was never recovered. Fenced is a later
	// one, without this head: it serves nothing any more.
	Incarnation string `json:"incarnation,omitempty"`
	Fenced      string `json:"fenced,omitempty"`
	// Former is the name that this head had before the cluster was recovered from its data.
	Former string `json:"former,omitempty"`
	// Started is set when a start has completed, so there is a store.
	Started bool `json:"started,omitempty"`
}

// exists reports whether the file was read or written, unlike that of a new directory.
func (d *dataFile) exists() bool { return d.Format != 0 }

func (d *dataFile) witness() bool { return d.Role == trivet.RoleWitness }

// joined reports whether the head joined a cluster, unlike the first head of one.
func (d *dataFile) joined() bool { return d.Token != "" }

// maxDataFile bounds the file, in bytes.
const maxDataFile = 64 << 10

// DataFile is the name of the file in the data directory that has the identity of a head. Without it, the directory has
// no head yet.
const DataFile = "head.json"

func dataPath(dir string) string { return filepath.Join(dir, DataFile) }

// openDir makes sure that this process can use the data directory, and reads its file.
func openDir(dir, version string) (d dataFile, err error) {
	if err := writable(dir); err != nil {
		return d, &trivet.Error{Op: "open data directory", Name: dir,
			Err:  fmt.Errorf("%w: %w", trivet.ErrUnavailable, err),
			Hint: "pass a directory that this user can write by --data-dir"}
	}
	if err := cluster.CheckNotRunning(filepath.Join(dir, "store")); err != nil {
		// before any other error, for a second process
		return d, err
	}
	if err := cluster.CheckStartSpace(dir); err != nil {
		return d, err
	}
	if fileExists(filepath.Join(dir, RecoveringDir)) {
		return d, &trivet.Error{Op: "open data directory", Name: dir,
			Err:  fmt.Errorf("%w: a recovery into it was not completed", trivet.ErrConflict),
			Hint: "run the same trivet recover again, with the same --data-dir" + giveUp(dir)}
	}
	d, err = readData(dataPath(dir))
	if errors.Is(err, unix.EIO) { // it may be whole
		return d, fmt.Errorf("open data directory: %w: %w", trivet.ErrUnavailable, err)
	}
	if err != nil {
		return d, &trivet.Error{Op: "open data directory", Name: dir, Err: err,
			Hint: "restore a backup of " + dataPath(dir)}
	}
	if d.exists() && d.Format != dataFormat {
		return d, errFormat(dir, &d, version)
	}
	return d, nil
}

// giveUp returns how to give up a recovery, if it has changed nothing in the directory yet.
func giveUp(dir string) string {
	temp := filepath.Join(dir, RecoveringDir)
	if fileExists(filepath.Join(temp, "ready")) {
		return ""
	}
	return "; or, to give it up, remove " + temp
}

// errFormat is the error of a data directory of another format.
func errFormat(dir string, d *dataFile, version string) error {
	hint := "run that version of trivet, or a newer one"
	if d.Format < dataFormat {
		hint = "run that version of trivet, or pass an empty directory by --data-dir"
	}
	return &trivet.Error{Op: "open data directory", Name: dir, Hint: hint,
		Err: fmt.Errorf("%w: version %s wrote it in format %d; this is %s, which reads format %d",
			trivet.ErrInvalid, d.Version, d.Format, version, dataFormat)}
}

// writable returns why a directory cannot be written. It creates one that does not exist.
func writable(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return &fs.PathError{Op: "write", Path: dir, Err: err}
	}
	return nil
}

// readData reads the file. It returns the zero value where there is none.
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
	if err != nil {
		return d, err
	}
	err = json.Unmarshal(text, &d)
	if err != nil || d.Format < 1 || trivet.ValidateName(d.Name) != nil {
		return dataFile{}, fmt.Errorf("%w: %s is damaged: %v", trivet.ErrInvalid, path, err)
	}
	return d, nil
}

// write writes the file, if it has changed.
func (d *dataFile) write(dir, version string) error {
	d.Version, d.Format = version, dataFormat
	text, err := json.Marshal(d)
	if err != nil {
		return err
	}
	text = append(text, '\n')
	path := dataPath(dir)
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, text) {
		return nil
	}
	if err := renameio.WriteFile(path, text, 0o600); err != nil {
		return &trivet.Error{Op: "write", Name: path, Err: fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)}
	}
	return nil
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
