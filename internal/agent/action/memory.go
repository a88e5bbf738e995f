package action

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/actionspec"
)

// availableMemory returns how much memory programs can still use, in bytes.
func availableMemory() int64 {
	text, err := os.ReadFile("/proc/meminfo")
	if err == nil {
		for line := range strings.Lines(string(text)) {
			value, ok := strings.CutPrefix(line, "MemAvailable:")
			if kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64); ok && err == nil {
				return kb << 10
			}
		}
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return int64(info.Freeram) * int64(info.Unit)
}

const (
	memoryStep = 16 << 20  // how much memory a processor tests between two looks at the context, in bytes
	memoryFree = 256 << 20 // what a test leaves free, in bytes; of a small machine half
)

// memoryPattern is what a word of the memory holds, by its number and the number of the pass.
type memoryPattern struct {
	name string
	word func(n, pass uint64) uint64
}

// memoryPatterns are written one after the other. The first differs at each address, so that lines of the address that
// are stuck are found, too.
var memoryPatterns = []memoryPattern{
	{"addresses", func(n, _ uint64) uint64 { return n * 0x9e3779b97f4a7c15 }},
	{"inverse addresses", func(n, _ uint64) uint64 { return ^(n * 0x9e3779b97f4a7c15) }},
	{"random", randomWord},
	{"inverse random", func(n, pass uint64) uint64 { return ^randomWord(n, pass) }},
	{"stripes", func(uint64, uint64) uint64 { return 0x5555555555555555 }},
	{"inverse stripes", func(uint64, uint64) uint64 { return 0xaaaaaaaaaaaaaaaa }},
}

// randomWord mixes a number as SplitMix64 does, so that no word has to be kept.
func randomWord(n, pass uint64) uint64 {
	x := n + pass*0xd1342543de82ef95 + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// memoryToTest returns how many bytes are tested: a part of what is free, and never so much that the machine has none
// left.
func memoryToTest(available int64, percent int) int64 {
	page := int64(os.Getpagesize())
	return min(available/100*int64(percent), available-min(memoryFree, available/2)) / page * page
}

// testMemory writes and reads a part of the memory with each pattern.
func (e *Env) testMemory(ctx context.Context, at *Attempt, s *actionspec.TestMemory) error {
	available := availableMemory()
	size := cmp.Or(e.TestMemory, memoryToTest(available, s.Percent))
	if size <= 0 {
		return finalf(trivet.FaultConfiguration, "the machine has %d KiB of free memory: too few to test", available>>10)
	}
	mem, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return fmt.Errorf("get %d MiB of memory: %w", size>>20, err)
	}
	defer unix.Munmap(mem)
	kernel, before := e.watchKernel(), readMemoryErrors(e.Sys)
	defer kernel.report(at.Log)
	t := &memoryTest{env: e, at: at, mem: mem, began: time.Now(), total: size * 2 * int64(len(memoryPatterns)*s.Passes)}
	err = t.run(ctx, s)
	found := readMemoryErrors(e.Sys).since(before)
	found.report(at.Log)
	at.Note(fmt.Sprintf("%d MiB, %d patterns, %s", size>>20, t.patterns, found))
	fmt.Fprintf(at.Log, "memory: %d of %d MiB that were free; %d patterns were written and read in %s, at %.0f MiB/s\n",
		size>>20, available>>20, t.patterns, t.took().Round(time.Second), t.rate()/(1<<20))
	return faultsOf([]error{err, found.fault(int64(s.Corrected))})
}

// memoryTest is one test of the memory.
type memoryTest struct {
	env      *Env
	at       *Attempt
	mem      []byte
	began    time.Time
	total    int64 // bytes that all passes write and read; more where there is time for more
	patterns int   // written and read so far

	mu    sync.Mutex // guards following, and the order of progress
	done  int64      // bytes
	wrong wrongWords
}

func (t *memoryTest) took() time.Duration { return time.Since(t.began) }

// rate is in bytes per second.
func (t *memoryTest) rate() float64 { return float64(t.done) / max(t.took().Seconds(), 0.001) }

// run does all passes, and ends after the first pattern that finds a fault.
func (t *memoryTest) run(ctx context.Context, s *actionspec.TestMemory) error {
	for pass := 0; pass < s.Passes || t.took() < s.Time.D(); pass++ {
		for _, p := range memoryPatterns {
			if pass >= s.Passes && t.took() >= s.Time.D() {
				return nil
			}
			if err := t.pattern(ctx, p, uint64(pass)); err != nil {
				return err
			}
			t.patterns++
		}
	}
	return nil
}

// pattern writes all of the memory, and then reads it.
func (t *memoryTest) pattern(ctx context.Context, p memoryPattern, pass uint64) error {
	if err := t.each(ctx, func(n uint64, b []byte) { fillMemory(p.word, n, pass, b) }); err != nil {
		return err
	}
	if t.env.memoryWritten != nil {
		t.env.memoryWritten(t.mem)
	}
	if err := t.each(ctx, func(n uint64, b []byte) { t.compare(p, n, pass, b) }); err != nil {
		return err
	}
	return t.wrong.fault(t.at.Log)
}

// each does something with all of the memory, by all processors. n is the number of the word that b begins with.
func (t *memoryTest) each(ctx context.Context, do func(n uint64, b []byte)) error {
	var all sync.WaitGroup
	var next atomic.Int64
	size := int64(len(t.mem))
	for range min(runtime.NumCPU(), int(size/memoryStep)+1) {
		all.Go(func() {
			for ctx.Err() == nil {
				off := next.Add(memoryStep) - memoryStep
				if off >= size {
					return
				}
				b := t.mem[off:min(off+memoryStep, size)]
				do(uint64(off/8), b)
				t.progress(int64(len(b)))
			}
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return ended(ctx, t.at.Run, "memory", t.done, t.total, t.took())
	}
	return nil
}

func (t *memoryTest) progress(n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done += n
	t.at.Progress(t.done, max(t.total, t.done), "bytes of memory")
}

func fillMemory(word func(n, pass uint64) uint64, n, pass uint64, b []byte) {
	for i := 0; i < len(b); i += 8 {
		binary.NativeEndian.PutUint64(b[i:], word(n+uint64(i/8), pass))
	}
}

func (t *memoryTest) compare(p memoryPattern, n, pass uint64, b []byte) {
	for i := 0; i < len(b); i += 8 {
		word := n + uint64(i/8)
		if got, want := binary.NativeEndian.Uint64(b[i:]), p.word(word, pass); got != want {
			again := binary.NativeEndian.Uint64(b[i:])
			t.mu.Lock()
			t.wrong.add(wrongWord{pattern: p.name, word: word, at: physical(&b[i]), got: got, want: want, again: again})
			t.mu.Unlock()
		}
	}
}
