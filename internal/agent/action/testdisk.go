package action

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/actionspec"
	"github.com/trivet-project/trivet/internal/agent/action/block"
)

const (
	testPiece   = 4 << 20 // how much of a disk a full test reads at a time, in bytes
	testSample  = 64 << 10
	maxBadParts = 16 // after which a disk is not read further
)

// testDisks tests disks at the same time, each to its end, so that one run names all that are faulty.
func (e *Env) testDisks(ctx context.Context, at *Attempt, s *actionspec.TestDisk) error {
	paths, err := e.pathsOf(at, s.Disk, s.IsAll())
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return finalf(trivet.FaultMachine, "%w that can be tested", actionspec.ErrNoDisk)
	}
	kernel := e.watchKernel()
	defer kernel.report(at.Log)
	log, parts := &lockedWriter{to: at.Log}, newTotal(at, len(paths))
	notes, errs := make([]string, len(paths)), make([]error, len(paths))
	waitForDisks(paths, func(i int, path string) {
		notes[i], errs[i] = e.testDisk(ctx, at.Run, path, s, log, func(size int64) func(done, total int64) {
			return parts.of(i, size)
		})
		if errs[i] != nil {
			fmt.Fprintln(log, errs[i])
		}
	})
	at.Note(strings.Join(notes, "; "))
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return context.Cause(ctx)
	}
	return faultsOf(errs)
}

// diskTest is the test of one disk.
type diskTest struct {
	*block.Device
	env      *Env
	run      *trivet.Run
	spec     *actionspec.TestDisk
	log      io.Writer
	progress func(done, total int64)

	piece  int64   // how much is read at a time
	places []int64 // of samples; nil: every piece
	began  time.Time
	done   int64 // bytes, also those that are read or written again
	total  int64
	reads  latencies
	bad    []string // the parts that cannot be read
}

// testDisk tests a disk and returns what was measured.
func (e *Env) testDisk(ctx context.Context, run *trivet.Run, path string, s *actionspec.TestDisk, log io.Writer,
	progress func(size int64) func(done, total int64)) (note string, err error) {
	if s.Mode == actionspec.TestWrite && e.Host.Keeps(path) {
		return "", finalf(trivet.FaultConfiguration, "%s has the agent's journal (spec.journal of the machine), and mode "+
			"write would lose it", path)
	}
	d, err := block.OpenDirect(path, s.Mode != actionspec.TestRead)
	if errors.Is(err, block.ErrInUse) {
		return "", finalf(trivet.FaultConfiguration, "%w: mode %s needs it alone", err, s.Mode)
	}
	if err != nil {
		return "", err
	}
	defer d.Close()
	t := &diskTest{Device: d, env: e, run: run, spec: s, log: log, progress: progress(d.Size()), piece: testPiece,
		began: time.Now(), total: d.Size()}
	if !s.Full {
		t.piece = min(testSample, d.Size()/sampleAlign*sampleAlign)
		t.places = samplePlaces(d.Size(), t.piece, s.Samples)
		t.total = t.piece * int64(s.Samples)
	}
	err = t.test(ctx)
	return fmt.Sprintf("%s: %s", filepath.Base(path), &t.reads), faultsOf([]error{err, t.health()})
}

// test tests the disk in its mode, and then judges what was measured.
func (t *diskTest) test(ctx context.Context) (err error) {
	switch t.spec.Mode {
	case actionspec.TestRewrite:
		err = t.rewriteAll(ctx)
	case actionspec.TestWrite:
		err = t.writeAll(ctx)
	default:
		err = t.readAll(ctx)
	}
	fmt.Fprintf(t.log, "%s: %d MiB, mode %s: %d KiB in %s; reads: %s\n", t.Path(), t.Size()>>20, t.spec.Mode, t.done>>10,
		time.Since(t.began).Round(time.Millisecond), &t.reads)
	if err != nil {
		return err
	}
	return t.judge()
}

// judge compares what was measured with the limits of the arguments.
func (t *diskTest) judge() error {
	var why []string
	if rate, least := t.reads.rate(), float64(t.spec.MinRate); rate < least {
		why = append(why, fmt.Sprintf("was read at %.0f MB/s, and minRate is %.0f MB/s", rate/1e6, least/1e6))
	}
	if p99, most := t.reads.percentile(99), t.spec.MaxLatency.D(); most > 0 && p99 > most {
		why = append(why, fmt.Sprintf("99 of 100 reads took up to %s, and maxLatency is %s", p99, most))
	}
	if len(why) == 0 {
		return nil
	}
	return finalf(trivet.FaultMachine, "%s %s", t.Path(), strings.Join(why, ", and "))
}

// health fails where the disk reports that it fails.
func (t *diskTest) health() error {
	read := (*block.Device).Health
	if t.env.diskHealth != nil {
		read = t.env.diskHealth
	}
	h, err := read(t.Device)
	if err != nil {
		fmt.Fprintf(t.log, "%s: health: %v\n", t.Path(), err)
		return nil
	}
	fmt.Fprintf(t.log, "%s: health: %s\n", t.Path(), h.Facts)
	if h.Failing != "" {
		return finalf(trivet.FaultMachine, "%s reports that it fails (SMART): %s; %s", t.Path(), h.Failing, h.Facts)
	}
	return nil
}

// sampleAlign is what the places of samples are multiples of.
const sampleAlign = 4096

// samplePlaces returns where samples of so many bytes are: each in a part of the disk of its own, at random.
func samplePlaces(size, piece int64, n int) []int64 {
	places := make([]int64, n)
	for i := range places {
		from, to := size/int64(n)*int64(i), size/int64(n)*int64(i+1)
		places[i] = max(0, min(from+rand.Int64N(max(1, to-from)), size-piece)) / sampleAlign * sampleAlign
	}
	return places
}

// each calls do for each part of the disk that is tested, until it fails or ctx ends.
func (t *diskTest) each(ctx context.Context, do func(off, n int64) error) error {
	next := func(i int64) (off int64, ok bool) {
		if t.places == nil {
			return i * t.piece, i*t.piece < t.Size()
		}
		if i >= int64(len(t.places)) {
			return 0, false
		}
		return t.places[i], true
	}
	for i := int64(0); ; i++ {
		off, ok := next(i)
		switch {
		case !ok:
			return nil
		case ctx.Err() != nil:
			return ended(ctx, t.run, t.Path(), t.done, t.total, time.Since(t.began))
		}
		n := min(t.piece, t.Size()-off)
		if err := do(off, n); err != nil {
			return err
		}
		t.done += n
		t.progress(min(t.done, t.total), t.total)
	}
}

// read reads a part from the disk, and measures how long that takes.
func (t *diskTest) read(off int64, b []byte) error {
	if err := t.Uncache(off, int64(len(b))); err != nil {
		return fmt.Errorf("drop the page cache: %w", err)
	}
	began := time.Now()
	if _, err := t.ReadAt(b, off); err != nil {
		return fmt.Errorf("at %d: %w", off, err)
	}
	t.reads.add(time.Since(began), len(b))
	return nil
}

// readAll reads the disk, notes the parts that cannot be read, and goes on.
func (t *diskTest) readAll(ctx context.Context) error {
	b := block.Aligned(int(t.piece))
	err := t.each(ctx, func(off, n int64) error {
		if err := t.read(off, b[:n]); err != nil {
			t.locate(ctx, off, b[:n])
		}
		if len(t.bad) >= maxBadParts {
			return t.badParts()
		}
		return nil
	})
	return cmp.Or(t.badParts(), err)
}

// locate reads a part that cannot be read in smaller ones, to find which. Drives take seconds for each.
func (t *diskTest) locate(ctx context.Context, off int64, b []byte) {
	found := len(t.bad)
	for at := int64(0); at < int64(len(b)) && len(t.bad) < maxBadParts && ctx.Err() == nil; at += sampleAlign {
		small := b[at:min(at+sampleAlign, int64(len(b)))]
		if _, err := t.ReadAt(small, off+at); err != nil {
			t.addBad(fmt.Sprintf("%d bytes at %d cannot be read: %v", len(small), off+at, err))
		}
	}
	if len(t.bad) == found {
		t.addBad(fmt.Sprintf("%d bytes at %d could not be read at once, but in parts", len(b), off))
	}
}

func (t *diskTest) addBad(text string) {
	t.bad = append(t.bad, text)
	fmt.Fprintf(t.log, "%s: %s\n", t.Path(), text)
}

func (t *diskTest) badParts() error {
	switch n := len(t.bad); {
	case n == 0:
		return nil
	case n == 1:
		return finalf(trivet.FaultMachine, "%s: %s", t.Path(), t.bad[0])
	case n >= maxBadParts:
		return finalf(trivet.FaultMachine, "%s: at least %d parts cannot be read; the first: %s", t.Path(), n, t.bad[0])
	default:
		return finalf(trivet.FaultMachine, "%s: %d parts cannot be read; the first: %s", t.Path(), n, t.bad[0])
	}
}
