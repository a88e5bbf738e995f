package server

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
)

// isDiskFault reports whether an error is one of a disk that fails, or of a file system that the kernel has made
// read-only for that. etcd passes some on as texts.
func isDiskFault(err error) bool {
	if errors.Is(err, unix.EIO) || errors.Is(err, unix.EROFS) {
		return true
	}
	text := err.Error()
	return strings.Contains(text, unix.EIO.Error()) || strings.Contains(text, unix.EROFS.Error())
}

// explainDisk names the disk and what to do, where an error that ends a head is one of its disk.
func explainDisk(err error, dir, head string) error {
	if err == nil || !isDiskFault(err) {
		return err
	}
	path, failed := dir, &fs.PathError{}
	if errors.As(err, &failed) && exists(failed.Path) {
		path = failed.Path
	}
	state, first := "fails", ""
	if errors.Is(err, unix.EROFS) || strings.Contains(err.Error(), unix.EROFS.Error()) {
		state = "is read-only"
		first = "; where the disk is good, check its file system (fsck), mount it for writing and start this head"
	}
	return &trivet.Error{Op: "run head", Name: head,
		Err: fmt.Errorf("%w: the disk of %s%s %s: %w", trivet.ErrUnavailable, path, device(path), state, err),
		Hint: fmt.Sprintf("see the kernel's log (dmesg)%s; where other heads have a quorum, run 'trivet head replace %s' "+
			"on one of them and start this head on another disk by the command that it prints; where this is the only "+
			"head, copy what can be read to another disk and run 'trivet recover --from-data-dir', or 'trivet recover "+
			"--from-backup': docs/recovery.md, \"A disk that fails\"", first, cmp.Or(head, "HEAD"))}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// device returns the device that a path is on, as " (/dev/sda2)"; "" if it is not known.
func device(path string) string {
	var st unix.Stat_t
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || unix.Stat(path, &st) != nil {
		return ""
	}
	number := fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	for line := range strings.Lines(string(mounts)) {
		place, source, ok := strings.Cut(line, " - ") // "36 35 98:0 / /mnt rw - ext3 /dev/root rw,errors=continue"
		where, what := strings.Fields(place), strings.Fields(source)
		if ok && len(where) > 2 && len(what) > 1 && where[2] == number {
			return " (" + what[1] + ")"
		}
	}
	return ""
}

// Bounds of what is kept of the errors of disks.
const (
	// faultLife is how long an error is reported after the last one of the same directory.
	faultLife = 24 * time.Hour
	// faultLogged is the time between two messages about the same directory.
	faultLogged = time.Minute
)

// diskFaults are the errors of the disks of a head that goes on without what could not be read or written: of its blobs
// and the logs of runs. Those of its store end it.
type diskFaults struct {
	log   *slog.Logger
	count *prometheus.CounterVec
	now   func() time.Time

	mu   sync.Mutex
	last map[string]*diskFault // by what is kept there; guarded by mu
}

type diskFault struct {
	text         string
	seen, logged time.Time
}

func newDiskFaults(log *slog.Logger, metrics prometheus.Registerer) *diskFaults {
	f := &diskFaults{log: log, now: time.Now, last: map[string]*diskFault{},
		count: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "trivet_disk_errors_total",
			Help: "Reads and writes of this head's blobs and of the logs of runs (directory) that its disk failed. The first " +
				"one of its store ends the head."}, []string{"directory"})}
	for _, of := range []string{"blobs", "logs"} {
		f.count.WithLabelValues(of)
	}
	metrics.MustRegister(f.count)
	return f
}

// note counts an error of a directory, and logs it, but not each.
func (f *diskFaults) note(directory string, err error) {
	f.count.WithLabelValues(directory).Inc()
	f.mu.Lock()
	defer f.mu.Unlock()
	last := f.last[directory]
	if last == nil {
		last = &diskFault{}
		f.last[directory] = last
	}
	last.text, last.seen = err.Error(), f.now()
	if last.seen.Sub(last.logged) < faultLogged {
		return
	}
	last.logged = last.seen
	f.log.Error("the disk of this head fails; the rest of the head goes on", "directory", directory, "error", err,
		"hint", "see the kernel's log (dmesg), and replace the disk: docs/recovery.md, \"A disk that fails\"")
}

// recent returns the last error of each directory.
func (f *diskFaults) recent() (all []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for directory, last := range f.last {
		if f.now().Sub(last.seen) < faultLife {
			all = append(all, directory+": "+last.text)
		}
	}
	slices.Sort(all)
	return all
}
