package server

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

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
