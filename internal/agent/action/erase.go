package action

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet/internal/agent/action/block"
)

// A disk is erased by the first method that it does not refuse. Disks are erased at the same time. A mark in the last
// bytes of a disk says how far an overwrite is, or by which method the disk is erased, so that an agent that boots
// again goes on from there.

// eraseMethod is a way to erase a disk.
type eraseMethod struct {
	name string
	// erase fails where the disk refuses it. noise: what is read then is not constant.
	erase func(ctx context.Context, j *eraseJob) (noise bool, err error)
}

// eraseJob is the erasure of one disk.
type eraseJob struct {
	*block.Device
	run      string // its UID
	from     int64  // where an overwrite goes on
	log      io.Writer
	progress func(done, total int64)
}

// methodsFor returns the methods for a disk, in the order to try.
func methodsFor(d *block.Device) []eraseMethod { return methodsOf(d.IsNode(), filepath.Base(d.Path())) }

func methodsOf(isNode bool, name string) []eraseMethod {
	var own []eraseMethod
	switch {
	case !isNode: // of the lab
	case strings.HasPrefix(name, "nvme"):
		own = []eraseMethod{{"NVMe sanitize", sanitizeNVMe}, {"NVMe format", formatNVMe}}
	case strings.HasPrefix(name, "sd"):
		own = []eraseMethod{{"ATA secure erase", eraseATA}}
	case strings.HasPrefix(name, "mmcblk"):
		own = []eraseMethod{{"secure discard", secureDiscard}}
	}
	return append(own, eraseMethod{"discard", discardAll}, eraseMethod{overwriteName, overwrite})
}

// overwriteName is the method that every disk has. The mark of one that is not finished names it.
const overwriteName = "overwrite"

// erase erases disks, and notes by which method each was.
func (e *Env) erase(ctx context.Context, at *Attempt, paths []string) error {
	log := &lockedWriter{to: at.Log}
	parts := newTotal(at, len(paths))
	methods := make([]string, len(paths))
	err := eachDisk(ctx, paths, func(i int, path string) (err error) {
		methods[i], err = e.eraseDisk(ctx, at.Run.UID, path, log, func(bytes int64) func(done, total int64) {
			return parts.of(i, bytes)
		})
		return err
	})
	if len(paths) == 0 {
		fmt.Fprintln(log, "the machine has no disk to erase")
	}
	at.Note(methodsNote(paths, methods))
	return err
}

// eachDisk does something with all disks at the same time, and returns all errors.
func eachDisk(ctx context.Context, paths []string, do func(i int, path string) error) error {
	errs := make([]error, len(paths))
	waitForDisks(paths, func(i int, path string) { errs[i] = do(i, path) })
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(errs...)
}

func waitForDisks(paths []string, do func(i int, path string)) {
	var all sync.WaitGroup
	for i, path := range paths {
		all.Go(func() { do(i, path) })
	}
	all.Wait()
}

// eraseDisk erases a disk by the first of its methods that works, and returns its name.
func (e *Env) eraseDisk(ctx context.Context, run, path string, log io.Writer,
	progress func(bytes int64) func(done, total int64)) (method string, err error) {
	d, err := block.Open(path)
	if err != nil {
		return "", err
	}
	defer d.Close()
	methods := methodsFor(d)
	if e.eraseMethods != nil {
		methods = e.eraseMethods(d)
	}
	j := &eraseJob{Device: d, run: run, log: log, progress: progress(d.Size())}
	m := readMark(d, run)
	switch {
	case m.done:
		fmt.Fprintf(log, "%s: is erased already, by %s\n", path, m.method)
		return m.method, nil
	case m.method == overwriteName:
		fmt.Fprintf(log, "%s: goes on with the overwrite at %d MiB\n", path, m.offset>>20)
		j.from = m.offset
		methods = slices.DeleteFunc(methods, func(m eraseMethod) bool { return m.name != overwriteName })
	}
	for i, method := range methods {
		began := time.Now()
		fmt.Fprintf(log, "%s: %d MiB, %s\n", path, d.Size()>>20, method.name)
		noise, err := method.erase(ctx, j)
		if err == nil {
			err = j.finish(ctx, mark{method: method.name, done: true, noise: noise})
		}
		if err == nil {
			fmt.Fprintf(log, "%s: erased by %s in %s\n", path, method.name, time.Since(began).Round(time.Second))
			return method.name, nil
		}
		if ctx.Err() != nil || i == len(methods)-1 {
			return "", fmt.Errorf("erase %s by %s: %w", path, method.name, cmp.Or(context.Cause(ctx), err))
		}
		fmt.Fprintf(log, "%s: %s is not possible: %v\n", path, method.name, err)
	}
	return "", fmt.Errorf("erase %s: it has no method", path)
}

// finish zeroes what no method may leave, the ends of the disk, and marks the disk as erased.
func (j *eraseJob) finish(ctx context.Context, m mark) error {
	if err := wipeRange(j.Device, 0, j.Size()); err != nil {
		return err
	}
	if err := m.write(j.Device, j.run); err != nil {
		return err
	}
	return reread(ctx, j.Device)
}

func sanitizeNVMe(ctx context.Context, j *eraseJob) (noise bool, err error) {
	n, err := j.NVMe()
	if err != nil {
		return false, err
	}
	return n.Sanitize(ctx, j.progress)
}

func formatNVMe(_ context.Context, j *eraseJob) (noise bool, err error) {
	n, err := j.NVMe()
	if err != nil {
		return false, err
	}
	return n.Format()
}

func eraseATA(_ context.Context, j *eraseJob) (noise bool, err error) {
	a, err := j.ATA()
	if err != nil {
		return false, err
	}
	return false, a.Erase(func(takes time.Duration) {
		fmt.Fprintf(j.log, "%s: the disk expects to need %s\n", j.Path(), takes)
	})
}

func secureDiscard(ctx context.Context, j *eraseJob) (noise bool, err error) {
	return false, j.steps(ctx, 0, dropStep, j.SecureDiscard)
}

// discardAll counts only where the disk reads as zeros then: disks may ignore a discard.
func discardAll(ctx context.Context, j *eraseJob) (noise bool, err error) {
	if err := j.steps(ctx, 0, dropStep, j.Discard); err != nil {
		return false, err
	}
	return false, eachSample(j.Device, zeroSample)
}

func zeroSample(off int64, b []byte) error {
	if !isZero(b) {
		return fmt.Errorf("the disk has data at %d after it was discarded", off)
	}
	return nil
}

// markEvery is after how many steps an overwrite is on stable storage, and marked.
const markEvery = 16

// overwrite writes zeros, from where an earlier agent got.
func overwrite(ctx context.Context, j *eraseJob) (noise bool, err error) {
	n := 0
	err = j.steps(ctx, j.from, zeroStep, func(off, bytes int64) error {
		if n++; n%markEvery == 0 {
			if err := errors.Join(j.Sync(), mark{method: overwriteName, offset: off}.write(j.Device, j.run)); err != nil {
				return err
			}
		}
		return zero(j.Device, off, bytes)
	})
	return false, err
}

// steps performs a long operation in pieces from an offset on, so that it can be cancelled and reports progress.
func (j *eraseJob) steps(ctx context.Context, from, step int64, do func(off, n int64) error) error {
	for off := from; off < j.Size(); off += step {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if err := do(off, min(step, j.Size()-off)); err != nil {
			if errors.Is(err, unix.EOPNOTSUPP) {
				err = errors.New("the disk does not support it")
			}
			return err
		}
		j.progress(min(off+step, j.Size()), j.Size())
	}
	return nil
}

// methodsNote says which disks were erased by which method.
func methodsNote(paths, methods []string) string {
	by := map[string][]string{}
	var order []string
	for i, m := range methods {
		if m == "" {
			m = "not erased"
		}
		if by[m] == nil {
			order = append(order, m)
		}
		by[m] = append(by[m], filepath.Base(paths[i]))
	}
	var parts []string
	for _, m := range order {
		parts = append(parts, m+": "+strings.Join(by[m], ", "))
	}
	return strings.Join(parts, "; ")
}

// lockedWriter is the log of several disks.
type lockedWriter struct {
	mu sync.Mutex // guards to
	to io.Writer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(b)
}

// total adds the progress of several disks.
type total struct {
	mu          sync.Mutex // guards following
	done, bytes []int64    // of each disk
	report      func(done, total int64, unit string)
}

func newTotal(at *Attempt, n int) *total {
	return &total{done: make([]int64, n), bytes: make([]int64, n), report: at.Progress}
}

// of returns the progress of one disk, which has so many bytes. It is given in parts of any total.
func (t *total) of(i int, bytes int64) func(done, total int64) {
	return func(done, of int64) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.bytes[i], t.done[i] = bytes, int64(float64(bytes)*float64(done)/float64(max(1, of)))
		sum, all := int64(0), int64(0)
		for i, n := range t.done {
			sum, all = sum+n, all+t.bytes[i]
		}
		t.report(sum, all, "bytes")
	}
}
