package action

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/trivet-project/trivet/internal/actionspec"
)

// A test of hardware without a fault leaves the disks as they are, wherever it reads them.
func TestHardware(t *testing.T) {
	each(t, 40<<20+512, func(t *testing.T, b *bench) {
		b.env.TestMemory = 1 << 20
		b.fill()
		before := b.content()
		for _, full := range []bool{false, true} {
			b.log.Reset()
			b.do("test", b.on(map[string]any{"full": full}))
			if b.note != "1 MiB of memory and 1 disks" {
				t.Errorf("note %q", b.note)
			}
			want := "4096 KiB in 64 pieces"
			if full {
				want = "40960 KiB in 11 pieces"
			}
			if !strings.Contains(b.log.String(), want) {
				t.Errorf("log, without %q:\n%s", want, b.log.String())
			}
			if !bytes.Equal(before, b.content()) {
				t.Error("the disk was changed")
			}
		}
	})
}

// A single bit of the memory that is not as it was written is found, with any pattern.
func TestFaultyMemory(t *testing.T) {
	for fault := range memoryPatterns {
		b := onFile(t, 40<<20)
		b.env.TestMemory = 1 << 20
		written := 0
		b.env.memoryWritten = func(mem []byte) {
			if written++; written == fault+1 {
				mem[len(mem)-3] ^= 0x10
			}
		}
		err := b.try(t.Context(), "test", map[string]any{"disk": "all"})
		if err == nil || !strings.Contains(err.Error(), "memory: word 131071 has 0x") {
			t.Errorf("pattern %d: %v", fault, err)
		}
	}
}

// A disk with parts that cannot be read is found: by a full test in any case.
func TestFaultyDisk(t *testing.T) {
	b := onLoop(t, 64<<20)
	b.env.TestMemory = 1 << 20
	back, err := os.ReadFile("/sys/block/" + strings.TrimPrefix(b.disk, "/dev/") + "/loop/backing_file")
	must(t, err)
	must(t, os.Truncate(strings.TrimSpace(string(back)), 63<<20)) // reads beyond fail
	for _, full := range []bool{false, true} {
		err := b.try(t.Context(), "test", b.on(map[string]any{"full": full}))
		if err == nil || !strings.Contains(err.Error(), b.disk+": ") {
			t.Errorf("full %t: %v", full, err)
		}
	}
}

// A reading that is wrong once is found, and what is on the disk stays: it is not written back.
func TestWrongReadingIsNotWritten(t *testing.T) {
	for _, full := range []bool{false, true} {
		b := onFile(t, 40<<20)
		b.env.TestMemory = 1 << 20
		b.fill()
		before, reads := b.content(), 0
		b.env.diskRead = func(_ int64, data []byte) {
			if reads++; reads == 5 {
				data[len(data)/2] ^= 1
			}
		}
		err := b.try(t.Context(), "test", b.on(map[string]any{"full": full}))
		if err == nil || !strings.Contains(err.Error(), "were read twice, and differ; nothing was written") {
			t.Errorf("full %t: %v", full, err)
		}
		if !strings.Contains(b.log.String(), "were read twice") || reads != 5 {
			t.Errorf("full %t: %d readings; log:\n%s", full, reads, b.log.String())
		}
		if !bytes.Equal(before, b.content()) {
			t.Errorf("full %t: the disk was changed", full)
		}
	}
}

// A machine that has no disk left is not one without a fault.
func TestNoDiskToTest(t *testing.T) {
	b := onFile(t, 40<<20)
	b.env.TestMemory, b.env.Host = 1<<20, Files{}
	err := b.try(t.Context(), "test", map[string]any{"disk": "all"})
	if !errors.Is(err, actionspec.ErrNoDisk) {
		t.Errorf("a test of no disk: %v", err)
	}
}
