package program

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/trivet-project/trivet"
)

// state is DATA-DIR/program/state.json. Programs of other releases read it, so its fields keep their meaning.
type state struct {
	// Run is the digest of the program that the head runs; empty: the installed one.
	Run string `json:"run,omitempty"`
	// Former is what it ran before, likewise.
	Former string `json:"former,omitempty"`
	// Installed is the installed program. Once another one is in its place, that runs.
	Installed installed `json:"installed"`
	// Upgrade is the number of the upgrade that selected Run.
	Upgrade int64 `json:"upgrade,omitempty"`
	// Starts counts the starts of Run until it is confirmed.
	Starts int `json:"starts,omitempty"`
	// Confirmed: Run has worked.
	Confirmed bool `json:"confirmed,omitempty"`
	// Problem is why the program Failed of upgrade GivenUp was given up.
	Problem string `json:"problem,omitempty"`
	GivenUp int64  `json:"givenUp,omitempty"`
	Failed  string `json:"failed,omitempty"`
}

// installed is a file of the installed program. Package managers create another file for another version.
type installed struct {
	Path  string    `json:"path,omitempty"`
	Size  int64     `json:"size,omitempty"`
	Time  time.Time `json:"time,omitzero"` // of its last change
	Inode uint64    `json:"inode,omitempty"`
}

func (i *installed) same(o *installed) bool {
	return i.Size == o.Size && i.Time.Equal(o.Time) && i.Inode == o.Inode
}

// ConfirmTime is how long a program must have worked before it is confirmed.
const ConfirmTime = 5 * time.Second

// maxStarts is how often a program may start before it has confirmed that it works.
const maxStarts = 3

// maxProblem bounds the text of why a program was given up.
const maxProblem = 500

// isInstalled reports whether this process runs the installed program.
func (d *Dir) isInstalled() bool { return d.own() == "" }

// installedAt returns the installed program.
func installedAt(path string) (i installed, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return i, err
	}
	i = installed{Path: path, Size: info.Size(), Time: info.ModTime().UTC()}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		i.Inode = stat.Ino
	}
	return i, nil
}

// selected returns the state. superseded: the selection is not in force, as a package was installed since.
func (d *Dir) selected() (s state, superseded bool, err error) {
	s, err = d.read()
	if err != nil || s.Run == "" || !d.isInstalled() {
		return s, false, err
	}
	now, err := installedAt(d.self)
	superseded = err == nil && !now.same(&s.Installed)
	return s, superseded, err
}

// Start is called when a process starts, before it uses the data directory. It returns the file of the program that
// must replace this one; empty: this one is to run.
func (d *Dir) Start() (file string, err error) {
	s, superseded, err := d.selected()
	if err != nil || superseded || !d.isInstalled() {
		return "", err
	}
	s.Installed.Path = d.self
	return d.next(&s)
}

// Next returns the file of the program that the head runs after this process, which replaces itself by it; empty: the
// same as now.
func (d *Dir) Next() (file string, err error) {
	s, superseded, err := d.selected()
	if err != nil || superseded {
		return "", err
	}
	if file, err = d.next(&s); file == "" && err == nil {
		file = s.Installed.Path
	}
	return file, err
}

// next counts a start of the selected program, and gives it up where it had enough of them.
func (d *Dir) next(s *state) (file string, err error) {
	for s.Run != "" {
		switch {
		case !d.Has(s.Run):
			s.giveUp("its file is not in the data directory any more")
		case s.Confirmed:
			return d.file(s.Run), nil
		case s.Starts < maxStarts:
			s.Starts++
			return d.file(s.Run), d.save(s)
		default:
			s.giveUp(fmt.Sprintf("it ended %d times before it was ready", s.Starts))
		}
		if err := d.save(s); err != nil {
			return "", err
		}
	}
	return "", nil
}

// giveUp goes back to the program of before, which has worked.
func (s *state) giveUp(problem string) {
	if s.GivenUp != s.Upgrade || s.Failed == "" { // the first program of an upgrade is the one that failed
		s.GivenUp, s.Failed, s.Problem = s.Upgrade, s.Run, short(problem)
	}
	s.Run, s.Former, s.Starts = s.Former, "", 0
	s.Confirmed = s.Run != ""
}

// Select makes the next start run a program, for the upgrade of this number. Where that is so already, it is not
// counted again.
func (d *Dir) Select(upgrade int64, digest string) error {
	if err := checkDigest(digest); err != nil {
		return err
	}
	s, superseded, err := d.selected()
	switch {
	case err != nil:
		return err
	case s.Run == digest && s.Upgrade == upgrade && !superseded:
		return nil
	case !d.Has(digest):
		return fmt.Errorf("%w: the program %s is not in the data directory", trivet.ErrNotFound, digest)
	case s.Run == d.own() && s.Run != "" && !s.Confirmed:
		return fmt.Errorf("%w: this head has not confirmed yet that its present program works", trivet.ErrConflict)
	}
	path := s.Installed.Path
	if d.isInstalled() {
		path = d.self
	}
	now, err := installedAt(path)
	switch {
	case err == nil: // a package that was installed meanwhile is older than this selection
		s.Installed = now
	case d.isInstalled():
		return unavailable(err)
	}
	return d.save(&state{Run: digest, Former: d.own(), Installed: s.Installed, Upgrade: upgrade})
}

// Confirm records that the program of this process works.
func (d *Dir) Confirm() error {
	if d.confirmed || d.isInstalled() {
		return nil
	}
	s, err := d.read()
	if err == nil && !s.Confirmed && s.Run == d.own() {
		s.Confirmed, s.Starts = true, 0
		err = d.save(&s)
	}
	d.confirmed = err == nil
	return err
}

// CanGoBack reports whether this process runs the program of an upgrade, and the one of before is there.
func (d *Dir) CanGoBack(upgrade int64) bool {
	s, err := d.read()
	return err == nil && !d.isInstalled() && s.Run == d.own() && s.Upgrade == upgrade && d.hasFormer(&s)
}

func (d *Dir) hasFormer(s *state) bool {
	if s.Former != "" {
		return d.Has(s.Former)
	}
	_, err := os.Stat(s.Installed.Path)
	return err == nil
}

// Unconfirmed reports whether this process runs a program that was selected, and is not confirmed yet.
func (d *Dir) Unconfirmed() bool {
	s, err := d.read()
	return err == nil && !d.isInstalled() && s.Run == d.own() && !s.Confirmed
}

// errNoFormer is the error of a head that knows no former program.
var errNoFormer = errors.New("this head knows no former program")

// GiveUp makes the next start run the program of before, where this process runs the one that was selected last.
func (d *Dir) GiveUp(problem string) error {
	s, err := d.read()
	switch {
	case err != nil:
		return err
	case d.isInstalled() || s.Run != d.own():
		return fmt.Errorf("%w: %w", trivet.ErrNotFound, errNoFormer)
	case !d.hasFormer(&s):
		return fmt.Errorf("%w: the file of the former program is gone", trivet.ErrNotFound)
	}
	s.giveUp(problem)
	return d.save(&s)
}

// GivenUp returns why a program of an upgrade was given up; empty: it was not.
func (d *Dir) GivenUp(upgrade int64, digest string) (problem string, err error) {
	s, err := d.read()
	if err != nil || s.GivenUp != upgrade || s.Failed != digest || digest == "" {
		return "", err
	}
	return s.Problem, nil
}
