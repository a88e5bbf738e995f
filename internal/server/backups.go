package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/blob"
	"github.com/trivet-project/trivet/internal/recovery"
	"github.com/trivet-project/trivet/internal/replica"
)

// ownBackups is this head as the source of the backups that it makes itself.
type ownBackups struct {
	source *recovery.Source
	blobs  *replica.Blobs
	store  *blob.Store
	// schedule is the UID of the schedule that they are made by, and bundle the keys in the last one.
	schedule string
	bundle   auth.Bundle
}

// Backup implements [recovery.Cluster].
func (s *ownBackups) Backup(ctx context.Context, contents bool) (io.ReadCloser, error) {
	b, err := s.source.Begin(ctx, contents, s.schedule)
	if err != nil {
		return nil, err
	}
	s.bundle = b.Bundle()
	return backupFile{b.Reader(), b}, nil
}

type backupFile struct {
	io.Reader
	backup *recovery.Backup
}

func (f backupFile) Close() error {
	f.backup.Close()
	return nil
}

// Bundle implements [backup.Source].
func (s *ownBackups) Bundle() auth.Bundle { return s.bundle }

// Blob implements [recovery.Cluster]: this head gets the blob first, where it does not hold it.
func (s *ownBackups) Blob(ctx context.Context, digest string) (io.ReadCloser, error) {
	d, err := blob.ParseDigest(digest)
	if err == nil {
		err = s.blobs.Fetch(ctx, d)
	}
	if err != nil {
		return nil, err
	}
	f, _, err := s.store.Get(d)
	return f, err
}

// ProveCommand is the command of this program that ServeProof is the whole of.
const ProveCommand = "prove-backup"

const (
	maxProof  = 64 << 20 // of what the other process reads: keys, and digests of blobs
	maxReport = 4 << 20  // of what it writes
	maxErrors = 4 << 10  // of its standard error output
)

// proof is what the other process writes.
type proof struct {
	Report recovery.Report `json:"report"`
	Error  string          `json:"error,omitempty"`
}

// proveBackup proves a backup in another process: the restored store needs as much memory as this one. Where memory is
// short, the kernel ends that process first. The keys are sent by its standard input, and are in no list of processes.
func proveBackup(ctx context.Context, p recovery.Proof) (r recovery.Report, err error) {
	input, err := json.Marshal(p)
	if err != nil {
		return r, err
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", ProveCommand)
	out, log := &limitedBuffer{left: maxReport}, &limitedBuffer{left: maxErrors}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), out, log
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // when the thread ends that started it
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return r, err
	}
	yield(cmd.Process.Pid)
	defer os.RemoveAll(p.Temp) // where it was killed
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			return r, context.Cause(ctx)
		}
		return r, &trivet.Error{Op: "prove the backup", Hint: "with too little memory on this head, the kernel ends it; " +
			"to prove it elsewhere: trivet backup verify",
			Err: fmt.Errorf("%w: its process ended: %w: %s", trivet.ErrUnavailable, err, firstLine(log.String()))}
	}
	var result proof
	if err := json.Unmarshal(out.Bytes(), &result); err != nil {
		return r, fmt.Errorf("%w: the process that proves it sent something else: %w", trivet.ErrUnavailable, err)
	}
	if result.Error != "" {
		return r, fmt.Errorf("%w: %s", trivet.ErrInvalid, result.Error)
	}
	return result.Report, nil
}

// yield makes a process the first one that the kernel ends where memory is short, and one that has the processor when
// no other needs it. Where this user may not do that, it is as other processes.
func yield(pid int) {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte("1000"), 0)
	_ = unix.Setpriority(unix.PRIO_PROCESS, pid, 15)
}

// ServeProof reads a proof from a stream, performs it, and writes the result to another one.
func ServeProof(ctx context.Context, from io.Reader, to io.Writer) error {
	var p recovery.Proof
	if err := json.NewDecoder(io.LimitReader(from, maxProof)).Decode(&p); err != nil {
		return errors.New("it is called by a head, with what is to be proven as its standard input")
	}
	var result proof
	var err error
	if result.Report, err = recovery.Prove(ctx, p); err != nil {
		result.Error = strings.TrimPrefix(err.Error(), trivet.ErrInvalid.Error()+": ")
	}
	return json.NewEncoder(to).Encode(result)
}

// limitedBuffer keeps the beginning of what is written to it.
type limitedBuffer struct {
	bytes.Buffer
	left int
}

func (b *limitedBuffer) Write(text []byte) (int, error) {
	n := min(len(text), b.left)
	b.Buffer.Write(text[:n])
	b.left -= n
	return len(text), nil
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}
