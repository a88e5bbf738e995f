package action

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/actionspec"
)

func TestMemory(t *testing.T) {
	b := onFile(t, 1<<20)
	b.env.TestMemory = 40 << 20 // more than a processor tests at a time
	must(t, b.try(t.Context(), "test-memory", map[string]any{"passes": 2}))
	b.has("40 of ", "; 12 patterns were written and read in ", "(EDAC)")
	if b.note != "40 MiB, 12 patterns, no EDAC" {
		t.Errorf("note %q", b.note)
	}
	if want := int64(40 << 20 * 2 * 12); b.seen != want {
		t.Errorf("the progress ended at %d, want %d", b.seen, want)
	}
	must(t, b.try(t.Context(), "test-memory", map[string]any{"time": "200ms"}))
	if strings.HasPrefix(b.note, "40 MiB, 0 ") {
		t.Errorf("note %q", b.note)
	}
}

// A single bit of the memory that is not as it was written is found, with any pattern, with its address and bit.
func TestFaultyMemory(t *testing.T) {
	for fault := range memoryPatterns {
		b := onFile(t, 1<<20)
		b.env.TestMemory = 1 << 20
		written := 0
		b.env.memoryWritten = func(mem []byte) {
			if written++; written == fault+1 {
				mem[len(mem)-3] ^= 0x10 // bit 4 of the sixth byte of the word at the end
			}
		}
		b.fail("test-memory", nil, trivet.FaultMachine, true, " was written (bit 44)")
		b.has("memory: pattern " + memoryPatterns[fault].name + ": ")
		if os.Geteuid() == 0 {
			b.has("physical address 0x")
		}
	}
}

// Many words that are wrong are counted, and the first ones are in the log.
func TestMemoryWithManyFaults(t *testing.T) {
	b := onFile(t, 1<<20)
	b.env.TestMemory = 1 << 20
	b.env.memoryWritten = func(mem []byte) {
		for i := range 1000 {
			mem[i*8+i%3] ^= 1 << 7
		}
	}
	b.fail("test-memory", nil, trivet.FaultMachine, true, "memory: 1000 words are wrong (bits 7, 15, 23); the first: ")
	if n := strings.Count(b.log.String(), "memory: pattern "); n != maxWrongWords {
		t.Errorf("%d words are in the log", n)
	}
}

// Each word of a pattern differs from those whose address differs in one bit, so that a line that is stuck is found.
func TestPatternsOfAddresses(t *testing.T) {
	for _, p := range memoryPatterns[:4] {
		for _, n := range []uint64{0, 1, 77, 1 << 33} {
			for bit := range 40 {
				if p.word(n, 0) == p.word(n^1<<bit, 0) {
					t.Errorf("%s: words %d and %d are the same", p.name, n, n^1<<bit)
				}
			}
		}
	}
	if randomWord(5, 0) == randomWord(5, 1) {
		t.Error("all passes have the same random values")
	}
	for i := 0; i < len(memoryPatterns); i += 2 {
		if memoryPatterns[i].word(9, 1)^memoryPatterns[i+1].word(9, 1) != ^uint64(0) {
			t.Errorf("%s is not the inverse of %s", memoryPatterns[i+1].name, memoryPatterns[i].name)
		}
	}
}

// A test takes its part of what is free, and leaves enough for the installer OS.
func TestMemoryThatStaysFree(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		available int64
		percent   int
		want      int64
	}{
		{64 << 30, 50, 32 << 30}, {64 << 30, 90, 64 << 30 / 10 * 9}, {1024 * mib, 90, 768 * mib},
		{256 * mib, 50, 128 * mib}, {256 * mib, 90, 128 * mib}, {0, 50, 0},
	} {
		got := memoryToTest(c.available, c.percent)
		if got > c.want || c.want-got > mib || got%4096 != 0 {
			t.Errorf("%d %% of %d: %d, want %d", c.percent, c.available, got, c.want)
		}
	}
	if availableMemory() <= 0 {
		t.Error("the memory of this machine is not known")
	}
}

// edac is the kernel's files of a machine with two memory modules.
func edac(ce, ue, exceptions int) fstest.MapFS {
	m := fstest.MapFS{}
	for name, data := range map[string]string{
		"sys/devices/system/edac/mc/mc0/ce_count":            fmt.Sprint(ce, "\n"),
		"sys/devices/system/edac/mc/mc0/ue_count":            fmt.Sprint(ue, "\n"),
		"sys/devices/system/edac/mc/mc0/dimm0/dimm_label":    "CPU_SrcID#0_MC#0_Chan#0_DIMM#0\n",
		"sys/devices/system/edac/mc/mc0/dimm0/dimm_ce_count": fmt.Sprint(ce, "\n"),
		"sys/devices/system/edac/mc/mc0/dimm0/dimm_ue_count": fmt.Sprint(ue, "\n"),
		"sys/devices/system/edac/mc/mc0/dimm1/dimm_ce_count": "0\n",
		"proc/interrupts": fmt.Sprintf("            CPU0       CPU1\n  0:  7  0  IO-APIC 2-edge timer\nMCE: %d 1 Machine check "+
			"exceptions\nMCP: 50 50 Machine check polls\n", exceptions),
	} {
		m[name] = &fstest.MapFile{Data: []byte(data)}
	}
	return m
}

// What the hardware counts during the test is a fault beyond what is allowed; what it has counted before is not.
func TestMemoryErrorsOfTheHardware(t *testing.T) {
	for _, c := range []struct {
		ce, ue, exceptions int
		corrected          int
		want               string
	}{
		{ce: 5}, {ce: 7, corrected: 2},
		{ce: 7, corrected: 1, want: "memory: the hardware has counted 2 corrected errors, 0 uncorrected during the test, " +
			"in CPU_SrcID#0_MC#0_Chan#0_DIMM#0; 1 corrected ones are allowed"},
		{ce: 5, ue: 1, corrected: 100, want: "0 corrected errors, 1 uncorrected"},
		{ce: 5, exceptions: 1, want: ", 1 machine check exceptions"},
	} {
		b := onFile(t, 1<<20)
		b.env.TestMemory = 1 << 20
		sys := edac(5, 0, 0)
		b.env.Sys = sys
		b.env.memoryWritten = func([]byte) { maps.Copy(sys, edac(c.ce, c.ue, c.exceptions)) }
		err := b.try(t.Context(), "test-memory", map[string]any{"corrected": c.corrected})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v", c, err)
		}
		if !strings.Contains(b.note, " corrected errors, ") {
			t.Errorf("note %q", b.note)
		}
	}
}

func TestKernelWarnings(t *testing.T) {
	for record, want := range map[string]string{
		"2,339,5140900,-;mce: [Hardware Error]: Machine check\n SUBSYSTEM=cpu\n": "mce: [Hardware Error]: Machine check",
		"4,340,5140901,-;EDAC MC0: 1 CE":                                         "EDAC MC0: 1 CE",
		"6,341,1,-;an information":                                               "",
		"12,342,1,-;of a program":                                                "",
		"no record":                                                              "", "x;y": "",
	} {
		if got, _ := kernelWarning(record); got != want {
			t.Errorf("%q: %q, want %q", record, got, want)
		}
	}
	b := onFile(t, 1<<20)
	b.env.Sys = fstest.MapFS{}
	var log bytes.Buffer
	k := b.env.watchKernel()
	if k == nil {
		t.Skip("this machine does not show the kernel's messages")
	}
	f, err := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0)
	must(t, err)
	defer f.Close()
	_, err = f.WriteString("<4>trivet: of a program, not of the kernel")
	must(t, err)
	k.report(&log)
	if strings.Contains(log.String(), "of a program") {
		t.Errorf("%s", log.String())
	}
}

// Several faults are one failure, which is the machine's where one of them is.
func TestFaultsOf(t *testing.T) {
	late := finalf(trivet.FaultConfiguration, "too short")
	faulty := finalf(trivet.FaultMachine, "it is faulty")
	for _, c := range []struct {
		errs  []error
		fault trivet.FailureType
		text  string
	}{
		{[]error{nil, late}, trivet.FaultConfiguration, "too short"},
		{[]error{late, nil, faulty}, trivet.FaultMachine, "too short; it is faulty"},
		{[]error{actionspec.ErrNoDisk}, trivet.FaultMachine, "no disk"},
	} {
		var f *Failure
		if err := faultsOf(c.errs); !errors.As(err, &f) || f.Fault != c.fault || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v: %v", c.errs, err)
		}
	}
	if err := faultsOf([]error{nil, nil}); err != nil {
		t.Error(err)
	}
}
