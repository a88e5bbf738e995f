package recovery

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/membership"
)

// target is a data directory that a recovery makes. While it is not complete, its subdirectory RecoveringDir has:
//
//	lock            locked by the process
//	new/            what becomes the data directory
//	salvaged/       a copy of the data of a head
//	ready           the plan, once new is complete and on the disk
//
// No head starts in such a directory.
type target struct {
	dir     string
	created bool // dir did not exist
	lock    *os.File
}

// openTarget locks a directory. It may have what another recovery left there, and with old set the data of a head.
func openTarget(dir string, old bool) (t *target, err error) {
	_, err = os.Lstat(dir)
	t = &target{dir: dir, created: errors.Is(err, fs.ErrNotExist)}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(t.done()); err != nil {
		return nil, err
	}
	if !t.ready() && !old {
		if err := t.checkEmpty(); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(t.temp(""), 0o700); err != nil {
		return nil, err
	}
	t.lock, err = os.OpenFile(t.temp("lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(t.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		t.lock.Close()
		return nil, &trivet.Error{Op: "recover to", Name: dir, Hint: "wait until that one has ended",
			Err: fmt.Errorf("%w: another recovery into it is in progress", trivet.ErrConflict)}
	}
	if t.ready() {
		return t, nil
	}
	err = errors.Join(os.RemoveAll(t.temp("new")), os.RemoveAll(t.temp("salvaged")), os.RemoveAll(t.temp("ready.new")))
	if err == nil {
		err = os.Mkdir(t.new(""), 0o700)
	}
	if err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// checkEmpty refuses a directory that has anything but what an interrupted recovery has left.
func (t *target) checkEmpty() error {
	entries, err := os.ReadDir(t.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != "lost+found" && e.Name() != membership.RecoveringDir {
			return &trivet.Error{Op: "recover to", Name: t.dir,
				Hint: "name a directory that is empty or does not exist",
				Err:  fmt.Errorf("%w: it is not empty: it has %s", trivet.ErrExists, e.Name())}
		}
	}
	return nil
}

// done is what the temporary directory is renamed to when all is in place, and before it is removed.
func (t *target) done() string { return filepath.Join(t.dir, membership.RecoveringDir+".done") }

func (t *target) temp(name string) string {
	return filepath.Join(t.dir, membership.RecoveringDir, name)
}
func (t *target) new(name string) string { return filepath.Join(t.temp("new"), name) }
func (t *target) close()                 { t.lock.Close() }

// ready reports whether all is in new, and remains to be put in place.
func (t *target) ready() bool {
	_, err := os.Stat(t.temp("ready"))
	return err == nil
}

// clear removes the temporary directory, unless all in it is ready.
func (t *target) clear() error {
	if t.ready() {
		return nil
	}
	err := os.RemoveAll(t.temp(""))
	if err == nil && t.created {
		err = os.Remove(t.dir)
	}
	return err
}

// setReady makes the recovery one that is only put in place from now on.
func (t *target) setReady(p *Plan) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := syncTree(t.new("")); err != nil {
		return err
	}
	return write(t.temp("ready"), func(f *os.File) error {
		_, err := f.Write(text)
		return err
	})
}

// complete puts what is ready in place. What was there is moved aside before, head.json first: a directory without it
// has no head. head.json of the new one comes last.
func (t *target) complete() (*Plan, error) {
	text, err := os.ReadFile(t.temp("ready"))
	p := &Plan{}
	if err == nil {
		err = json.Unmarshal(text, p)
	}
	if err == nil {
		err = t.moveOld(p)
	}
	if err == nil {
		err = t.moveNew()
	}
	if err == nil {
		err = syncDir(t.dir)
	}
	if err == nil {
		err = os.Rename(t.temp(""), t.done())
	}
	if err == nil {
		err = errors.Join(syncDir(t.dir), os.RemoveAll(t.done()))
	}
	if err != nil {
		return nil, &trivet.Error{Op: "recover to", Name: t.dir, Err: fmt.Errorf("%w: %w", trivet.ErrUnavailable, err),
			Hint: "correct it, and run the same command again: it continues"}
	}
	return p, nil
}

const dataName = "head.json"

// moveOld moves the data of the former head aside. Its blobs, logs, and administrator's file remain.
func (t *target) moveOld(p *Plan) error {
	if _, err := os.Lstat(t.new(dataName)); errors.Is(err, fs.ErrNotExist) {
		return nil // all is in place already
	}
	aside := filepath.Join(t.dir, "aside", "recovered-"+p.Time.UTC().Format("20060102T150405Z"))
	for _, name := range []string{dataName, "store", "keys", "peer.pem"} {
		from, to := filepath.Join(t.dir, name), filepath.Join(aside, name)
		_, err := os.Lstat(t.new(name))
		moved := name != "peer.pem" && errors.Is(err, fs.ErrNotExist) // the new one is in place
		if _, err := os.Lstat(from); moved || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := os.MkdirAll(aside, 0o700); err != nil {
			return err
		}
		if err := os.Rename(from, to); err != nil {
			return err
		}
		if err := syncDir(t.dir); err != nil {
			return err
		}
	}
	return nil
}

func (t *target) moveNew() error {
	entries, err := os.ReadDir(t.new(""))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == dataName {
			continue
		}
		if err := os.Rename(t.new(e.Name()), filepath.Join(t.dir, e.Name())); err != nil {
			return err
		}
	}
	if err := syncDir(t.dir); err != nil {
		return err
	}
	err = os.Rename(t.new(dataName), filepath.Join(t.dir, dataName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// syncTree writes the directories and files of a tree to the disk.
func syncTree(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !d.IsDir() && !d.Type().IsRegular() {
			return nil
		}
		return syncDir(path)
	})
}

// sizeOf returns the sizes of the files in a tree.
func sizeOf(dir string) (bytes int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // reading it fails, too
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			bytes += info.Size()
		}
		return nil
	})
	return bytes
}

// now is the time of a recovery, for people.
func now() time.Time { return time.Now().UTC().Truncate(time.Second) }
