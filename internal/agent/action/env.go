package action

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/actionspec"
	"github.com/trivet-project/trivet/internal/agent/action/block"
	"github.com/trivet-project/trivet/internal/agent/container/sandbox"
)

// Env is the machine that actions work on.
type Env struct {
	Host Host
	// Dir is for what an action needs while it runs: unpacked containers. It should be in memory.
	Dir string
	// Firmware is "bios" or "uefi".
	Firmware string
	// Fetch reads a blob from the first of the URLs that has it, and continues at another if one fails. The content is
	// verified; a wrong digest is trivet.ErrInvalid.
	Fetch func(ctx context.Context, urls []string, ref trivet.BlobRef) (io.ReadCloser, error)
	// LoadKernel loads the kernel that EndKexec starts; it is [KexecLoad] in a machine.
	LoadKernel func(kernel, initrd *os.File, cmdline string) error
	// TestMemory is how many bytes of memory are tested; 0: as the action says.
	TestMemory int64
	// Sys are the kernel's files: "/" of a machine; nil where it is simulated.
	Sys fs.FS

	chosen   chosenDisks
	restored string // UID of the run whose arrays and volume groups run; see [Env.restore]
	// start runs a program; nil: [sandbox.Run].
	start func(ctx context.Context, s sandbox.Spec) error
	// eraseMethods returns the methods to erase a disk; nil: those that the disk may have.
	eraseMethods func(*block.Device) []eraseMethod
	// memoryWritten is called after each pattern was written to the memory that is tested; it may be nil.
	memoryWritten func(mem []byte)
	// diskRead is called after the first reading of a part of a disk that is rewritten; it may be nil.
	diskRead func(off int64, b []byte)
	// diskWritten is called after a disk that is tested was written; it may be nil.
	diskWritten func(*block.Device)
	// diskHealth returns what a disk reports of itself; nil: the disk is asked.
	diskHealth func(*block.Device) (block.Health, error)
}

// Host is where disks and file systems are: a [Machine], or [Files] in the lab.
type Host interface {
	// Disk returns the path of the disk that hints match (see [actionspec.ChooseDisk]).
	Disk(h trivet.DiskHints) (path string, err error)
	// Disks returns the paths of all disks that may be written.
	Disks() ([]string, error)
	// Keeps reports whether a disk has what the agent needs: its journal.
	Keeps(path string) bool
	// Root mounts the installed system's root file system, on a partition of a disk; 0: wherever it is on it.
	Root(ctx context.Context, disk string, partition int) (*Root, error)
}

// Root is a mounted root file system.
type Root struct {
	Dir   string   // where it is mounted
	Disk  string   // path of its disk, which may be an array or a volume of LVM
	Disks []string // that Disk is made of: paths; Disk where it is made of no others
	UUID  string   // of the file system; may be empty

	volumes []volume          // of all its disks
	mounted map[string]volume // below it, by directory
	undo    func() error
}

// Close flushes and unmounts it.
func (r *Root) Close() error {
	if r.undo == nil {
		return nil
	}
	return r.undo()
}

// Do performs one attempt of an action. Its errors are a [Failure] or the end of ctx.
func (e *Env) Do(ctx context.Context, at *Attempt) error {
	s, err := actionspec.Parse(at.Action)
	if err != nil {
		return &Failure{Fault: trivet.FaultConfiguration, Final: true, Err: err}
	}
	if err = e.restore(ctx, at); err == nil {
		err = e.do(ctx, at, s)
	}
	if ctx.Err() != nil && err != nil && !isFailure(err) {
		return err // cancelled: the agent has the cause
	}
	return classify(err)
}

func (e *Env) do(ctx context.Context, at *Attempt, s actionspec.Spec) error {
	switch s := s.(type) {
	case *actionspec.Wipe:
		return e.wipe(ctx, at, s)
	case *actionspec.Verify:
		return e.verify(ctx, at, s)
	case *actionspec.TestMemory:
		return e.testMemory(ctx, at, s)
	case *actionspec.TestDisk:
		return e.testDisks(ctx, at, s)
	case *actionspec.TestNetwork:
		return e.testNetwork(ctx, at, s)
	case *actionspec.Partition:
		return e.partition(ctx, at, s)
	case *actionspec.Raid:
		return e.raid(ctx, at, s)
	case *actionspec.LVM:
		return e.lvm(ctx, at, s)
	case *actionspec.Format:
		return e.format(ctx, at, s)
	case *actionspec.Image:
		return e.image(ctx, at, s)
	case *actionspec.Archive:
		return e.archive(ctx, at, s)
	case *actionspec.File:
		return e.file(ctx, at, s)
	case *actionspec.Command:
		return e.command(ctx, at, s)
	case *actionspec.Head:
		return e.head(ctx, at, s)
	case *actionspec.Seed:
		return e.seed(ctx, at, s)
	case *actionspec.Bootloader:
		return e.bootloader(ctx, at, s)
	case *actionspec.Container:
		return e.container(ctx, at, s)
	case *actionspec.Kexec:
		return e.kexec(ctx, at, s)
	case *actionspec.Noop:
		return noop(ctx, s)
	}
	return nil // reboot and poweroff are what the agent does when everything is reported
}

// classify returns err as a [Failure], whose type follows from its cause.
func classify(err error) error {
	switch {
	case err == nil || isFailure(err):
		return err
	case errors.Is(err, actionspec.ErrNoDisk):
		return &Failure{Fault: trivet.FaultMachine, Final: true, Err: err}
	case errors.Is(err, actionspec.ErrNoMatch), errors.Is(err, actionspec.ErrAmbiguousDisk):
		return &Failure{Fault: trivet.FaultConfiguration, Final: true, Err: err}
	case errors.Is(err, block.ErrNoPartition), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EISDIR),
		errors.Is(err, unix.ELOOP), errors.Is(err, fs.ErrExist), errors.Is(err, unix.ENAMETOOLONG):
		return &Failure{Fault: trivet.FaultConfiguration, Final: true, Err: err}
	}
	return &Failure{Fault: trivet.FaultMachine, Err: err}
}

func isFailure(err error) bool {
	var f *Failure
	return errors.As(err, &f)
}

// inRoot mounts the installed system, calls f and unmounts it.
func (e *Env) inRoot(ctx context.Context, at *Attempt, r actionspec.Root, f func(*Root) error) (err error) {
	disk, err := e.disk(at, r.Disk)
	if err != nil {
		return err
	}
	root, err := e.Host.Root(ctx, disk, r.Partition)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	return f(root)
}
