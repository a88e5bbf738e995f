package action

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
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

// memoryStep is how much of the memory is tested between two looks at the context, in bytes.
const memoryStep = 64 << 20

// memoryPatterns are what a word of the memory holds, by its number. The first differs at each address, so that lines
// of the address that are stuck are found, too; the second is its complement.
var memoryPatterns = []func(n uint64) uint64{
	func(n uint64) uint64 { return n * 0x9e3779b97f4a7c15 },
	func(n uint64) uint64 { return ^(n * 0x9e3779b97f4a7c15) },
	func(uint64) uint64 { return 0x5555555555555555 },
	func(uint64) uint64 { return 0xaaaaaaaaaaaaaaaa },
}

// testMemory writes and reads a part of the memory with each pattern, and returns how many bytes it has.
func (e *Env) testMemory(ctx context.Context, at *Attempt) (size int64, err error) {
	size = cmp.Or(e.TestMemory, availableMemory()/2) &^ 7
	mem, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return 0, fmt.Errorf("get %d MiB of memory: %w", size>>20, err)
	}
	defer unix.Munmap(mem)
	began, done := time.Now(), int64(0)
	pass := func(do func(n uint64, b []byte) error) error {
		for off := int64(0); off < size; off += memoryStep {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			b := mem[off:min(off+memoryStep, size)]
			if err := do(uint64(off/8), b); err != nil {
				return finalf(trivet.FaultMachine, "memory: %w", err)
			}
			done += int64(len(b))
			at.Progress(done, size*2*int64(len(memoryPatterns)), "bytes of memory")
		}
		return nil
	}
	for _, pattern := range memoryPatterns {
		if err := pass(func(n uint64, b []byte) error { fillMemory(pattern, n, b); return nil }); err != nil {
			return 0, err
		}
		if e.memoryWritten != nil {
			e.memoryWritten(mem)
		}
		if err := pass(func(n uint64, b []byte) error { return compareMemory(pattern, n, b) }); err != nil {
			return 0, err
		}
	}
	fmt.Fprintf(at.Log, "memory: %d MiB were written and read with %d patterns in %s\n", size>>20, len(memoryPatterns),
		time.Since(began).Round(time.Second))
	return size, nil
}

func fillMemory(pattern func(uint64) uint64, n uint64, b []byte) {
	for i := 0; i < len(b); i += 8 {
		binary.NativeEndian.PutUint64(b[i:], pattern(n+uint64(i/8)))
	}
}

func compareMemory(pattern func(uint64) uint64, n uint64, b []byte) error {
	for i := 0; i < len(b); i += 8 {
		word := n + uint64(i/8)
		if got, want := binary.NativeEndian.Uint64(b[i:]), pattern(word); got != want {
			return fmt.Errorf("word %d has %#x, and %#x was written", word, got, want)
		}
	}
	return nil
}
