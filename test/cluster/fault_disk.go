package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet/test/faultfs"
)

// The last head's data is on a small file system of its own, over a loop device: its disk can be slow, or full. Or
// all heads have disks that lose at a power cut what was not synced.

const diskBytes = 768 << 20

// disk is such a file system.
type disk struct {
	at     string // where it is mounted
	device string // MAJOR:MINOR
}

// newDisk mounts one at a directory.
func newDisk(file, at string) (*disk, error) {
	f, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	err = errors.Join(f.Truncate(diskBytes), f.Close(), os.MkdirAll(at, 0o700),
		run(exec.Command("mkfs.ext4", "-q", "-m", "0", file)), run(exec.Command("mount", "-o", "loop", file, at)))
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Stat(at, &st); err != nil {
		return nil, err
	}
	return &disk{at, fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))}, nil
}

func (d *disk) close() { _ = unix.Unmount(d.at, unix.MNT_DETACH) }

// fill uses all free space; undo frees it.
func (d *disk) fill() (undo func() error, err error) {
	f, err := os.Create(filepath.Join(d.at, "fill"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	block := make([]byte, 1<<20)
	for err == nil {
		_, err = f.Write(block)
	}
	if !errors.Is(err, unix.ENOSPC) {
		return nil, err
	}
	return func() error { return os.Remove(f.Name()) }, nil
}

// fullDisk fills the last head's disk from outside. A head begins no write then. It must keep its copy of
// what the others write, and ends when it no longer can. It is started again when there is room.
func fullDisk(ctx context.Context, t *trial) (string, func() error, error) {
	h := t.heads[len(t.heads)-1]
	h.mayEnd(true)
	undo, err := t.disk.fill()
	return h.port, func() error {
		err := undo()
		nap(ctx, endTimeout) // one that has failed may still be ending
		if !h.mayEnd(false) {
			err = errors.Join(err, h.start(""))
		}
		return err
	}, err
}

// endTimeout is how long a head that has failed may take to end its requests.
const endTimeout = 8 * time.Second

// group is a control group of the kernel's first interface, which not every machine has.
type group struct{ dir string }

// newGroup makes one of a controller ("cpu", "blkio") and puts a head's process into it.
func newGroup(controller string, h *head) (*group, error) {
	name := fmt.Sprint("trivet-cluster-", h.port, "-", uint64(h.site.history.Seed))
	g := &group{filepath.Join("/sys/fs/cgroup", controller, name)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.run == nil {
		return nil, fmt.Errorf("%s does not run", h.port)
	}
	if err := os.MkdirAll(g.dir, 0o755); err != nil {
		return nil, err
	}
	return g, g.set("cgroup.procs", fmt.Sprint(h.run.PID()))
}

func (g *group) set(file, value string) error {
	return os.WriteFile(filepath.Join(g.dir, file), []byte(value), 0o644)
}

// close moves the group's processes out and removes it.
func (g *group) close() error {
	procs, err := os.ReadFile(filepath.Join(g.dir, "cgroup.procs"))
	for pid := range strings.FieldsSeq(string(procs)) {
		_ = os.WriteFile(filepath.Join(filepath.Dir(g.dir), "cgroup.procs"), []byte(pid), 0o644) // it may have ended
	}
	return errors.Join(err, os.Remove(g.dir))
}

// starve limits a head to a tenth of a processor.
func starve(_ context.Context, t *trial) (string, func() error, error) {
	h := t.any()
	g, err := newGroup("cpu", h)
	if err != nil {
		return "", nil, err
	}
	return h.port, g.close, errors.Join(g.set("cpu.cfs_period_us", "100000"), g.set("cpu.cfs_quota_us", "10000"))
}

// slowDisk limits the last head's disk to thirty writes a second.
func slowDisk(_ context.Context, t *trial) (string, func() error, error) {
	h := t.heads[len(t.heads)-1]
	g, err := newGroup("blkio", h)
	if err != nil {
		return "", nil, err
	}
	return h.port, g.close, g.set("blkio.throttle.write_iops_device", t.disk.device+" 30")
}

// lossyDisk mounts a disk that knows what was not synced.
func lossyDisk(backing, at string) (*faultfs.FS, error) {
	if err := os.MkdirAll(at, 0o700); err != nil {
		return nil, err
	}
	return faultfs.Mount(backing, at)
}

// cutPower ends a head whose disk then has nothing that was not synced, or only some of it.
func cutPower(_ context.Context, t *trial) (string, func() error, error) { return t.unpowered(t.any()) }

func cutAllPower(_ context.Context, t *trial) (string, func() error, error) {
	return t.unpowered(t.heads...)
}

func (t *trial) unpowered(heads ...*head) (string, func() error, error) {
	what, undo, err := t.killed(heads...)
	keep := t.dice
	if t.dice.IntN(2) == 0 {
		keep = nil
	}
	for _, h := range heads {
		if h.lossy == nil {
			err = fmt.Errorf("%s has no disk that loses anything: this needs a round of power cuts", h.port)
			return what, undo, err
		}
		err = errors.Join(err, h.lossy.Cut(keep))
	}
	return what, undo, err
}
