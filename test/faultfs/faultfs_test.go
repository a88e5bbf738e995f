package faultfs_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet/test/faultfs"
)

// disk is a file system that loses what was not synced, with a method for each change.
type disk struct {
	*testing.T
	*faultfs.FS
}

func (d disk) ok(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

func (d disk) path(name string) string { return filepath.Join(d.Dir(), name) }

// write creates or changes a file from an offset on, without a sync.
func (d disk) write(name, text string, off int64) {
	d.Helper()
	f, err := os.OpenFile(d.path(name), os.O_RDWR|os.O_CREATE, 0o600)
	d.ok(err)
	_, err = f.WriteAt([]byte(text), off)
	d.ok(errors.Join(err, f.Close()))
}

func (d disk) sync(names ...string) {
	d.Helper()
	for _, name := range names {
		f, err := os.Open(d.path(name))
		d.ok(err)
		d.ok(errors.Join(f.Sync(), f.Close()))
	}
}

func (d disk) rename(from, to string)   { d.Helper(); d.ok(os.Rename(d.path(from), d.path(to))) }
func (d disk) remove(name string)       { d.Helper(); d.ok(os.Remove(d.path(name))) }
func (d disk) mkdir(name string)        { d.Helper(); d.ok(os.Mkdir(d.path(name), 0o700)) }
func (d disk) truncate(n string, s int) { d.Helper(); d.ok(os.Truncate(d.path(n), int64(s))) }

// tree returns all files and directories: "name" or "name=content".
func (d disk) tree() string {
	d.Helper()
	var all []string
	d.ok(filepath.WalkDir(d.Dir(), func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == d.Dir() {
			return err
		}
		name, _ := filepath.Rel(d.Dir(), path)
		if !e.IsDir() {
			text, err := os.ReadFile(path)
			d.ok(err)
			name += "=" + strings.ReplaceAll(string(text), "\x00", "0")
		}
		all = append(all, name)
		return nil
	}))
	return strings.Join(all, " ")
}

// mustCutTo cuts the power, and wants this tree afterwards.
func (d disk) mustCutTo(want string) {
	d.Helper()
	d.ok(d.Cut(nil))
	if got := d.tree(); got != want {
		d.Errorf("after the cut: %s, want %s", got, want)
	}
}

// powerCuts are changes of a disk, and its tree before and after a power cut.
var powerCuts = map[string]struct {
	do           func(disk)
	before, want string
}{
	"bytes and size": {func(d disk) {
		d.write("a", "old", 0)
		d.sync("a")
		d.write("a", "NEW and more", 0)
	}, "a=NEW and more", "a=old"},
	"synced bytes stay": {func(d disk) {
		d.write("a", "old", 0)
		d.write("a", "NEW", 0)
		d.sync("a")
		d.write("b", "x", 0)
	}, "a=NEW b=x", "a=NEW"},
	"many layers": {func(d disk) {
		d.write("a", "0123456789", 0)
		d.sync("a")
		d.write("a", "abc", 4)
		d.write("a", "AB", 3)
		d.truncate("a", 4)
		d.write("a", "z", 8)
	}, "a=012A0000z", "a=0123456789"},
	"emptied at opening": {func(d disk) {
		d.write("a", "old", 0)
		d.sync("a")
		d.ok(os.WriteFile(d.path("a"), []byte("x"), 0o600))
	}, "a=x", "a=old"},
	"a rename over a file": {func(d disk) {
		d.write("a", "old", 0)
		d.sync("a")
		d.write("a.new", "new", 0)
		d.sync("a.new")
		d.rename("a.new", "a")
	}, "a=new", "a=old a.new=new"},
	"a rename, the directory synced": {func(d disk) {
		d.write("a", "old", 0)
		d.sync("a")
		d.write("a.new", "new", 0)
		d.rename("a.new", "a")
		d.sync(".")
	}, "a=new", "a="}, // the name is kept, the bytes are not
	"removed": {func(d disk) {
		d.write("a", "old", 0)
		d.sync("a")
		d.remove("a")
		d.mkdir("a")
		d.mkdir("a/b")
	}, "a a/b", "a=old"},
	"removed, synced": {func(d disk) {
		d.write("a", "old", 0)
		d.sync("a")
		d.remove("a")
		d.sync(".")
	}, "", ""},
	"a directory within a directory": {func(d disk) {
		d.mkdir("a")
		d.mkdir("a/b")
		d.write("a/b/c", "x", 0)
		d.write("a/d", "x", 0)
		d.sync("a/b/c")
		d.rename("a/b", "b")
		d.write("b/e", "x", 0)
	}, "a a/d=x b b/c=x b/e=x", "a a/b a/b/c=x a/d="},
	"a directory removed": {func(d disk) {
		d.mkdir("a")
		d.write("a/b", "x", 0)
		d.sync("a/b")
		d.remove("a/b")
		d.remove("a")
	}, "", "a a/b=x"},
	"a directory removed, synced": {func(d disk) {
		d.mkdir("a")
		d.write("a/b", "x", 0)
		d.sync("a/b")
		d.remove("a/b")
		d.remove("a")
		d.sync(".")
	}, "", ""},
}

func TestPowerCut(t *testing.T) {
	for name, tc := range powerCuts {
		t.Run(name, func(t *testing.T) {
			d := disk{t, faultfs.New(t)}
			tc.do(d)
			if got := d.tree(); got != tc.before {
				t.Errorf("before the cut: %s, want %s", got, tc.before)
			}
			d.mustCutTo(tc.want)
			d.mustCutTo(tc.want) // a second cut changes nothing
		})
	}
}

// A power cut keeps a random number of the unsynced changes, the first ones.
func TestPowerCutKeepsSome(t *testing.T) {
	d := disk{t, faultfs.New(t)}
	d.write("a", "0000", 0)
	d.sync("a")
	rng, seen := rand.New(rand.NewPCG(1, 1)), map[string]bool{}
	for len(seen) < 5 {
		for i := range 4 {
			d.write("a", fmt.Sprint(i+1), int64(i))
		}
		d.ok(d.Cut(rng))
		seen[d.tree()] = true
		d.write("a", "0000", 0)
		d.sync("a")
	}
	want := []string{"a=0000", "a=1000", "a=1200", "a=1230", "a=1234"}
	if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, want) {
		t.Errorf("left were %v", got)
	}
}

func TestErrors(t *testing.T) {
	d := disk{t, faultfs.New(t)}
	d.mkdir("x")
	d.write("a", "old", 0)
	d.write("x/a", "old", 0)
	d.sync("a", "x/a")
	d.Set(faultfs.Faults{SyncError: syscall.EIO, WriteError: syscall.ENOSPC, Under: "x"})
	d.write("a", "new", 0)
	d.sync("a")
	f, err := os.OpenFile(d.path("x/a"), os.O_RDWR, 0)
	d.ok(err)
	defer f.Close()
	if _, err := f.WriteAt([]byte("new"), 0); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a write: %v", err)
	}
	if err := syscall.Fallocate(int(f.Fd()), 0, 0, 1<<20); err != syscall.ENOSPC {
		t.Errorf("an allocation: %v", err)
	}
	if err := f.Sync(); !errors.Is(err, syscall.EIO) {
		t.Errorf("a sync: %v", err)
	}
	if err := syscall.Fdatasync(int(f.Fd())); err != syscall.EIO {
		t.Errorf("a data sync: %v", err)
	}
	d.Set(faultfs.Faults{SyncError: syscall.EIO, Under: "x"})
	_, err = f.WriteAt([]byte("new"), 0)
	d.ok(err)
	if err := f.Sync(); err == nil {
		t.Error("a sync is well")
	}
	d.ok(f.Close())
	d.mustCutTo("a=new x x/a=old")
}

// A sync that a disk only acknowledges keeps nothing.
func TestLie(t *testing.T) {
	d := disk{t, faultfs.New(t)}
	d.write("a", "old", 0)
	d.sync("a")
	d.Set(faultfs.Faults{Lie: true})
	d.write("a", "new", 0)
	d.sync("a", ".")
	d.mustCutTo("a=old")
}

// What is delayed is done after the delay, or as soon as the delay is removed.
func TestDelay(t *testing.T) {
	d := disk{t, faultfs.New(t)}
	d.write("a", "old", 0)
	d.Set(faultfs.Faults{SyncDelay: time.Hour, WriteDelay: time.Millisecond})
	began := time.Now()
	d.write("a", "new", 0)
	if took := time.Since(began); took < time.Millisecond {
		t.Errorf("a write took %s", took)
	}
	before, done := d.Syncs(), make(chan struct{})
	go func() { defer close(done); d.sync("a") }()
	for d.Syncs() == before {
		time.Sleep(time.Millisecond) // the begin of a sync is not observable
	}
	select {
	case <-done:
		t.Error("the sync did not wait")
	default:
	}
	d.Set(faultfs.Faults{})
	<-done
	d.mustCutTo("a=new")
}

// A copy of the mount in another namespace delays nothing, and fails after a power cut.
func TestCopyElsewhere(t *testing.T) {
	d := disk{t, faultfs.New(t)}
	d.write("a", "old", 0)
	d.sync("a")
	other := exec.Command("sh", "-c",
		"mount --make-rprivate / && exec 3<"+d.path("a")+" && echo held && cat && cat <&3")
	other.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	in, err := other.StdinPipe()
	d.ok(err)
	out, err := other.StdoutPipe()
	d.ok(err)
	d.ok(other.Start())
	_, err = out.Read(make([]byte, 5))
	d.ok(err)
	d.ok(d.Cut(nil))
	d.ok(in.Close())
	if rest, _ := io.ReadAll(out); len(rest) > 0 || other.Wait() == nil {
		t.Errorf("the copy reads %q", rest)
	}
	if got := d.tree(); got != "a=old" {
		t.Errorf("after the cut: %s", got)
	}
}

// A sync that fails takes the file's bytes for written: they are read until the cache is dropped, and a sync that
// succeeds later has not written them.
func TestFailedSync(t *testing.T) {
	d := disk{t, faultfs.New(t)}
	d.write("a", "old", 0)
	d.sync("a")
	d.Set(faultfs.Faults{SyncError: syscall.EIO, SyncErrors: 1})
	d.write("a", "NEW and more", 0)
	f, err := os.OpenFile(d.path("a"), os.O_RDWR, 0)
	d.ok(err)
	defer f.Close()
	if err := f.Sync(); !errors.Is(err, syscall.EIO) {
		t.Errorf("the first sync: %v", err)
	}
	d.write("a", "!", 12)
	d.sync("a")
	if got, want := d.tree(), "a=NEW and more!"; got != want {
		t.Errorf("before the cut: %s, want %s", got, want)
	}
	d.ok(unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
	if got, want := d.tree(), "a=old000000000!"; got != want {
		t.Errorf("from the disk: %s, want %s", got, want)
	}
	d.ok(f.Close())
	d.mustCutTo("a=old000000000!")
}

// Bytes that a disk cannot read are not read from the cache, either; those beside them are.
func TestReadErrors(t *testing.T) {
	d := disk{t, faultfs.New(t)}
	page := strings.Repeat("x", os.Getpagesize())
	d.write("a.log", page+page+page, 0)
	d.write("b", page, 0)
	f, err := os.Open(d.path("a.log"))
	d.ok(err)
	defer f.Close()
	read := func(at int) error {
		_, err := f.ReadAt(make([]byte, len(page)), int64(at*len(page)))
		return err
	}
	d.ok(errors.Join(read(0), read(1), read(2)))
	d.Set(faultfs.Faults{ReadError: syscall.EIO, From: int64(len(page)), To: int64(len(page) + 1), Match: "*.log"})
	if err := read(1); !errors.Is(err, syscall.EIO) {
		t.Errorf("a page that cannot be read: %v", err)
	}
	d.ok(errors.Join(read(0), read(2)))
	_, err = os.ReadFile(d.path("b"))
	d.ok(err)
	d.Set(faultfs.Faults{})
	d.ok(read(1))
	d.ok(f.Close())
}

// A disk that became read-only is read, and refuses every change, also by files that were open before.
func TestReadOnly(t *testing.T) {
	d := disk{t, faultfs.New(t)}
	d.mkdir("x")
	d.write("a", "old", 0)
	f, err := os.OpenFile(d.path("a"), os.O_RDWR, 0)
	d.ok(err)
	defer f.Close()
	d.Set(faultfs.Faults{ReadOnly: true})
	_, written := f.WriteAt([]byte("new"), 0)
	for what, err := range map[string]error{
		"write": written, "sync": f.Sync(), "truncate": f.Truncate(1),
		"allocate": syscall.Fallocate(int(f.Fd()), 0, 0, 100), "create": os.WriteFile(d.path("b"), nil, 0o600),
		"open": os.WriteFile(d.path("a"), nil, 0o600), "mkdir": os.Mkdir(d.path("y"), 0o700),
		"remove": os.Remove(d.path("a")), "rmdir": os.Remove(d.path("x")), "rename": os.Rename(d.path("a"), d.path("c")),
		"symlink": os.Symlink("a", d.path("l")), "link": os.Link(d.path("a"), d.path("l")),
		"mode": os.Chmod(d.path("a"), 0o644),
	} {
		if !errors.Is(err, syscall.EROFS) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got := d.tree(); got != "a=old x" {
		t.Errorf("the disk has %s", got)
	}
	d.Set(faultfs.Faults{})
	d.ok(f.Close())
	d.write("a", "new", 0)
}
