package program

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/google/renameio/v2"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/wait"
)

// Dir is the directory of the programs of one head. One process at a time changes it.
type Dir struct {
	path string
	self string // the file of the program that this process runs

	confirmed bool // that of this process
}

// Open returns the directory in a head's data directory. It need not exist. self is the file of this process' program.
func Open(dataDir, self string) *Dir {
	dir := filepath.Join(dataDir, "program")
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil { // as the kernel names the program's file
		dir = real
	}
	return &Dir{path: dir, self: self}
}

// Version is what a program prints of itself: trivet version --client -o json.
type Version struct {
	Version string         `json:"client"`
	Release trivet.Release `json:"release"`
}

const (
	digestPrefix = "sha256:"
	newSuffix    = ".new"
	// MaxBytes bounds a program.
	MaxBytes = 1 << 30
)

// name is that of the file of each program, as processes are listed by it.
const name = "trivet"

// dir returns the directory of a program, and file its file.
func (d *Dir) dir(digest string) string {
	return filepath.Join(d.path, strings.TrimPrefix(digest, digestPrefix))
}
func (d *Dir) file(digest string) string { return filepath.Join(d.dir(digest), name) }

// own returns the digest of the program of this process; empty: it is the installed one.
func (d *Dir) own() string {
	dir := filepath.Dir(d.self)
	if filepath.Dir(dir) != d.path {
		return ""
	}
	return digestPrefix + filepath.Base(dir)
}

// checkDigest requires a digest, as it becomes a name of a file.
func checkDigest(digest string) error {
	digits, ok := strings.CutPrefix(digest, digestPrefix)
	if raw, err := hex.DecodeString(digits); !ok || err != nil || len(raw) != sha256.Size ||
		strings.ToLower(digits) != digits {
		return fmt.Errorf("%w: %.80q is not the digest of a program", trivet.ErrInvalid, digest)
	}
	return nil
}

// Has reports whether the directory has a program.
func (d *Dir) Has(digest string) bool {
	info, err := os.Lstat(d.file(digest))
	return err == nil && info.Mode().IsRegular()
}

// Stage stores a program, whose content and version must be as they were announced, and removes those that are of no
// use any more. It fails with ErrInvalid where a repetition cannot succeed.
func (d *Dir) Stage(ctx context.Context, digest string, want Version, content io.Reader) error {
	if err := checkDigest(digest); err != nil {
		return err
	}
	temp := d.dir(digest) + newSuffix
	if err := errors.Join(os.MkdirAll(d.path, 0o700), d.clean(digest), os.Mkdir(temp, 0o700)); err != nil {
		return unavailable(err)
	}
	file := filepath.Join(temp, name)
	err := write(file, digest, content)
	if err == nil {
		err = check(ctx, file, want)
	}
	if err == nil {
		err = unavailable(errors.Join(syncDir(temp), os.Rename(temp, d.dir(digest)), syncDir(d.path)))
	}
	if err != nil {
		err = errors.Join(err, os.RemoveAll(temp))
	}
	return err
}

// write writes the content of a program to a file.
func write(path, digest string, content io.Reader) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o700)
	if err != nil {
		return unavailable(err)
	}
	hash := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, hash), io.LimitReader(content, MaxBytes+1))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return unavailable(err)
	}
	if got := digestPrefix + hex.EncodeToString(hash.Sum(nil)); got != digest {
		return fmt.Errorf("%w: the content of the program is damaged: %d bytes with %s, not %s", trivet.ErrUnavailable, n,
			got, digest)
	}
	return nil
}

// checkTimeout bounds the run of a program that prints its version: on a busy disk it is read first.
const checkTimeout = 30 * time.Second

// check runs a program for its version.
func check(ctx context.Context, path string, want Version) error {
	got, err := VersionOf(ctx, path)
	switch {
	case err != nil:
		return err
	case got != want:
		return fmt.Errorf("%w: the program is version %.80s of release %.40s, and not %s of release %s", trivet.ErrInvalid,
			got.Version, got.Release, want.Version, want.Release)
	}
	return nil
}

// failedRun is the error of a program that did not print its version. A repetition may succeed where the host was to
// blame.
func failedRun(ctx context.Context, path string, err error, output string) error {
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: programs cannot run from %s: %w; mount its file system without noexec",
			trivet.ErrInvalid, filepath.Dir(path), err)
	case errors.Is(err, syscall.ENOEXEC) || errors.As(err, &exit) && exit.Exited():
		return fmt.Errorf("%w: the program does not print its version: %w: %.200s", trivet.ErrInvalid, err, output)
	}
	return fmt.Errorf("%w: the program does not print its version: %w", trivet.ErrUnavailable, err)
}

// maxBusy and busyWait bound how long a program is tried that cannot start because its file is open for writing.
const (
	maxBusy  = 50
	busyWait = 20 * time.Millisecond
)

// maxVersionText bounds what a program prints of itself, in bytes.
const maxVersionText = 64 << 10

// VersionOf runs a program for its version. It fails with ErrInvalid where it is none that could run as a head here.
func VersionOf(ctx context.Context, path string) (v Version, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	var out, failure limited
	for tries := 0; ; tries++ {
		cmd := exec.CommandContext(ctx, path, "version", "--client", "-o", "json")
		cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = []string{}, &out, &failure, time.Second
		err = cmd.Run()
		// a process that another goroutine starts has the file open for writing until it is another program
		if !errors.Is(err, syscall.ETXTBSY) || tries == maxBusy || wait.Sleep(ctx, busyWait) != nil {
			break
		}
	}
	if err != nil {
		return v, failedRun(ctx, path, err, strings.TrimSpace(failure.String()))
	}
	if err := json.Unmarshal(out.Bytes(), &v); err != nil || v.Version == "" || v.Release == "" {
		return v, fmt.Errorf("%w: it is no program of Trivet that could replace a running one: it prints %.80q",
			trivet.ErrInvalid, out.String())
	}
	return v, nil
}

// limited is a buffer that drops what is beyond maxVersionText.
type limited struct{ bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	_, _ = l.Buffer.Write(p[:min(len(p), max(0, maxVersionText-l.Len()))])
	return len(p), nil
}

// clean removes all files but the state and the programs of a digest, of the selection and of before.
func (d *Dir) clean(keep string) error {
	s, err := d.read()
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(d.path)
	for _, e := range entries {
		digest := digestPrefix + e.Name()
		if e.Name() == stateFile || digest == keep || digest == s.Run || digest == s.Former || digest == d.own() {
			continue
		}
		err = errors.Join(err, os.RemoveAll(filepath.Join(d.path, e.Name())))
	}
	return err
}

// Running returns the digest of the program that this process runs.
func (d *Dir) Running() (string, error) {
	if own := d.own(); own != "" {
		return own, nil
	}
	f, err := os.Open("/proc/self/exe") // its file may have been replaced
	if err != nil {
		return "", unavailable(err)
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return "", unavailable(err)
	}
	return digestPrefix + hex.EncodeToString(hash.Sum(nil)), nil
}

func unavailable(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
}

// syncDir syncs renames in a directory to stable storage.
func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// stateFile is the name of the file with the state.
const stateFile = "state.json"

// maxState bounds the file, in bytes.
const maxState = 64 << 10

// read returns the state; the zero value where nothing was ever selected.
func (d *Dir) read() (s state, err error) {
	f, err := os.Open(filepath.Join(d.path, stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, unavailable(err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxState))
	if err != nil {
		return s, unavailable(err)
	}
	err = json.Unmarshal(text, &s)
	for _, digest := range []string{s.Run, s.Former} {
		if err == nil && digest != "" {
			err = checkDigest(digest)
		}
	}
	if err != nil {
		return state{}, fmt.Errorf("%w: %s is damaged: %w", trivet.ErrInvalid, f.Name(), err)
	}
	return s, nil
}

func (d *Dir) save(s *state) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(d.path, 0o700); err != nil {
		return unavailable(err)
	}
	return unavailable(renameio.WriteFile(filepath.Join(d.path, stateFile), append(text, '\n'), 0o600))
}
