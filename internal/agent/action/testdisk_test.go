package action

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/actionspec"
	"github.com/trivet-project/trivet/internal/agent/action/block"
)

// has checks that the log of the last attempt has texts.
func (b *bench) has(texts ...string) {
	b.t.Helper()
	for _, text := range texts {
		if !strings.Contains(b.log.String(), text) {
			b.t.Errorf("the log has no %q:\n%s", text, b.log.String())
		}
	}
}

// A test of a disk without a fault, which reads or rewrites, leaves it as it is, wherever it reads.
func TestDisk(t *testing.T) {
	each(t, 40<<20+512, func(t *testing.T, b *bench) {
		b.fill()
		before := b.content()
		for _, mode := range []string{"read", "rewrite"} {
			for _, full := range []bool{false, true} {
				b.do("test-disk", b.on(map[string]any{"full": full, "mode": mode}))
				want := "mode " + mode + ": 4096 KiB in "
				if full {
					want = "mode " + mode + ": 40960 KiB in "
				}
				b.has(want, "; reads: ", " MB/s, 50 % within ", "health: the disk does not report its health")
				if !strings.Contains(b.note, " MB/s, 50 % within ") {
					t.Errorf("note %q", b.note)
				}
				if !bytes.Equal(before, b.content()) {
					t.Errorf("mode %s, full %t: the disk was changed", mode, full)
				}
			}
		}
		b.do("test-disk", b.on(map[string]any{"samples": 200}))
		b.has("12800 KiB in ", "200 at ")
	})
}

// Mode write needs its permission, changes the disk, and finds a byte that changes after it was written.
func TestDiskIsWritten(t *testing.T) {
	each(t, 16<<20, func(t *testing.T, b *bench) {
		b.fail("test-disk", b.on(map[string]any{"mode": "write"}), trivet.FaultConfiguration, true, "destructive: true")
		write := b.on(map[string]any{"mode": "write", "destructive": true, "full": true})
		b.do("test-disk", write)
		b.has("mode write: 65536 KiB in ") // both patterns, written and read
		if bytes.Contains(b.content(), make([]byte, 64)) {
			t.Error("a part of the disk was not written")
		}
		for flip := range diskPatterns {
			written := 0
			b.env.diskWritten = func(d *block.Device) {
				if written++; written == flip+1 {
					buffer := block.Aligned(4096)
					_, err := d.ReadAt(buffer, 8<<20)
					must(t, err)
					buffer[100] ^= 1
					_, err = d.WriteAt(buffer, 8<<20)
					must(t, err)
				}
			}
			b.fail("test-disk", write, trivet.FaultMachine, true, "the byte at 8388708 was written as ")
		}
	})
}

// A disk in use, and that of the agent's journal, are not written.
func TestDisksThatAreKept(t *testing.T) {
	b := onLoop(t, 64<<20)
	b.do("format", map[string]any{"fs": "ext4"})
	before := b.content()
	write := b.on(map[string]any{"mode": "write", "destructive": true})
	link := t.TempDir() + "/journal"
	must(t, os.Symlink(b.disk, link))
	for _, journal := range []string{b.disk, link} {
		b.env.Host.(*Machine).Avoid = []string{journal}
		b.fail("test-disk", write, trivet.FaultConfiguration, true, "has the agent's journal")
	}
	if !bytes.Equal(before, b.content()) {
		t.Error("the disk was written")
	}
	b.env.Host.(*Machine).Avoid = []string{"/dev/other"}
	b.in(0, func(string) {
		b.fail("test-disk", write, trivet.FaultConfiguration, true, "is in use: mode write needs it alone")
		b.fail("test-disk", b.on(map[string]any{"mode": "rewrite"}), trivet.FaultConfiguration, true, "is in use")
		b.do("test-disk", nil) // reads
	})
}

// The journal may be a partition: then it is the disk that is avoided.
func TestDiskOfAPartition(t *testing.T) {
	const devices = "../../devices/pci0000:00/"
	m := fstest.MapFS{}
	for name, link := range map[string]string{"sda": "ata1/block/sda", "sda3": "ata1/block/sda/sda3",
		"nvme0n1p2": "nvme/nvme0/nvme0n1/nvme0n1p2", "nvme0n1": "nvme/nvme0/nvme0n1"} {
		m["sys/class/block/"+name] = &fstest.MapFile{Data: []byte(devices + link), Mode: fs.ModeSymlink}
		m["sys/devices/pci0000:00/"+link+"/uevent"] = &fstest.MapFile{}
		if strings.HasSuffix(name, "3") || strings.HasSuffix(name, "p2") {
			m["sys/devices/pci0000:00/"+link+"/partition"] = &fstest.MapFile{}
		}
	}
	for path, want := range map[string]string{"/dev/sda3": "/dev/sda", "/dev/nvme0n1p2": "/dev/nvme0n1",
		"/dev/sda": "/dev/sda", "/dev/nvme0n1": "/dev/nvme0n1", "/var/journal": "/var/journal"} {
		if got := diskOf(m, path); got != want {
			t.Errorf("the disk of %s is %s, want %s", path, got, want)
		}
	}
}

// A disk with parts that cannot be read is found by each mode, and its offsets are in the log.
func TestFaultyDisk(t *testing.T) {
	b := onLoop(t, 64<<20)
	back, err := os.ReadFile("/sys/block/" + strings.TrimPrefix(b.disk, "/dev/") + "/loop/backing_file")
	must(t, err)
	must(t, os.Truncate(strings.TrimSpace(string(back)), 63<<20+8192)) // reads beyond fail
	for _, full := range []bool{false, true} {
		b.fail("test-disk", b.on(map[string]any{"full": full, "mode": "rewrite"}), trivet.FaultMachine, true, b.disk+": at ")
		b.fail("test-disk", b.on(map[string]any{"full": full, "samples": 1000}), trivet.FaultMachine, true,
			b.disk+": at least 16 parts cannot be read; the first: 4096 bytes at ")
	}
	b.has("4096 bytes at 66068480 cannot be read: ", ": input/output error")
	must(t, os.Truncate(strings.TrimSpace(string(back)), 64<<20-4096))
	b.fail("test-disk", b.on(map[string]any{"full": true}), trivet.FaultMachine, true,
		b.disk+": 4096 bytes at 67104768 cannot be read")
}

// All disks are tested to the end: one run names each that is faulty.
func TestAllFaultyDisksAreNamed(t *testing.T) {
	b := newBench(t, Files{map[string]string{"/dev/vda": sparse(t, 8<<20), "/dev/vdb": sparse(t, 8<<20),
		"/dev/vdc": sparse(t, 8<<20)}}, "")
	faulty := map[string]bool{}
	for _, name := range []string{"/dev/vda", "/dev/vdc"} {
		faulty[b.env.Host.(Files).Paths[name]] = true
	}
	b.env.diskHealth = func(d *block.Device) (block.Health, error) {
		if faulty[d.Path()] {
			return block.Health{DiskHealth: trivet.DiskHealth{Failing: "it is worn out"}, Facts: "wear 101 %"}, nil
		}
		return block.Health{Facts: "wear 3 %"}, nil
	}
	err := b.try(t.Context(), "test-disk", map[string]any{"disk": "all"})
	var f *Failure
	if !errors.As(err, &f) || f.Fault != trivet.FaultMachine || !f.Final {
		t.Fatalf("%+v", err)
	}
	for path := range faulty {
		want := path + " reports that it fails (SMART): it is worn out; wear 101 %"
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nhas no %q", err, want)
		}
	}
	if strings.Contains(err.Error(), b.env.Host.(Files).Paths["/dev/vdb"]) {
		t.Errorf("a disk without a fault is named: %v", err)
	}
	b.has("health: wear 3 %")
}

// A reading that is wrong once is found, and what is on the disk stays: it is not written back.
func TestWrongReadingIsNotWritten(t *testing.T) {
	for _, full := range []bool{false, true} {
		b := onFile(t, 40<<20)
		b.fill()
		before, reads := b.content(), 0
		b.env.diskRead = func(_ int64, data []byte) {
			if reads++; reads == 5 {
				data[len(data)/2] ^= 1
			}
		}
		b.fail("test-disk", b.on(map[string]any{"full": full, "mode": "rewrite"}), trivet.FaultMachine, true,
			"were read twice, and differ; nothing was written")
		b.has("were read twice")
		if reads != 5 {
			t.Errorf("full %t: %d readings", full, reads)
		}
		if !bytes.Equal(before, b.content()) {
			t.Errorf("full %t: the disk was changed", full)
		}
	}
}

// A machine that has no disk left is not one without a fault.
func TestNoDiskToTest(t *testing.T) {
	b := onFile(t, 40<<20)
	b.env.Host = Files{}
	err := b.try(t.Context(), "test-disk", map[string]any{"disk": "all"})
	if !errors.Is(err, actionspec.ErrNoDisk) {
		t.Errorf("a test of no disk: %v", err)
	}
}

// Limits of the arguments are compared with what was measured.
func TestLimitsOfADisk(t *testing.T) {
	d := &diskTest{Device: &block.Device{}, spec: &actionspec.TestDisk{MinRate: 100e6,
		MaxLatency: trivet.Duration(20 * time.Millisecond)}}
	for range 1000 {
		d.reads.add(10*time.Millisecond, 2_000_000) // 200 MB/s
	}
	if err := d.judge(); err != nil {
		t.Error(err)
	}
	for range 20 {
		d.reads.add(2*time.Second, 4<<20)
	}
	err := d.judge()
	if err == nil || !strings.Contains(err.Error(), "was read at 42 MB/s, and minRate is 100 MB/s, and 99 of 100 reads "+
		"took up to 2s, and maxLatency is 20ms") {
		t.Error(err)
	}
}

// A test whose time is up blames the machine where it is slow, and otherwise the timeout.
func TestTestsThatDoNotEnd(t *testing.T) {
	ctx, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	<-ctx.Done()
	for _, c := range []struct {
		done  int64
		fault trivet.FailureType
		text  string
	}{
		{1e6, trivet.FaultMachine, "/dev/sda: 0 of 95367 MiB were tested in 10s, which is less than 10 MB/s"},
		{1e9, trivet.FaultConfiguration, "the timeout of the action is too short; give it 22m0s"},
	} {
		err := ended(ctx, &trivet.Run{}, "/dev/sda", c.done, 100e9, 10*time.Second)
		var f *Failure
		if !errors.As(err, &f) || f.Fault != c.fault || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%d bytes: %v; want %s", c.done, err, c.text)
		}
	}
	check := &trivet.Run{Spec: trivet.WorkflowSpec{Release: trivet.ReleaseCheck}}
	var f *Failure
	err := ended(ctx, check, "/dev/sda", 1e9, 100e9, 10*time.Second)
	if !errors.As(err, &f) || f.Fault != trivet.FaultMachine || !strings.Contains(err.Error(), "is too slow") {
		t.Errorf("a check: %v", err)
	}
	stop := errors.New("the run is paused")
	other, cancelOther := context.WithCancelCause(t.Context())
	cancelOther(stop)
	if err := ended(other, check, "/dev/sda", 1, 2, time.Second); err != stop {
		t.Error(err)
	}
}

// Percentiles are at most 13 % more than those of the reads.
func TestLatencies(t *testing.T) {
	var l latencies
	if l.String() != "none" || l.percentile(99) != 0 {
		t.Errorf("no read: %s", &l)
	}
	for i := range 10_000 {
		l.add(time.Duration(i+1)*time.Microsecond*10, 1000)
	}
	for p, want := range map[int64]time.Duration{50: 50 * time.Millisecond, 99: 99 * time.Millisecond,
		1: time.Millisecond, 100: 100 * time.Millisecond} {
		if got := l.percentile(p); got < want || got > want+want*13/100 {
			t.Errorf("percentile %d is %s, want about %s", p, got, want)
		}
	}
	for _, d := range []time.Duration{0, time.Microsecond, 7 * time.Millisecond, time.Hour, 1000 * time.Hour} {
		if end := endOf(bucketOf(d)); end < d && d < 100*time.Hour {
			t.Errorf("%s is in the bucket that ends with %s", d, end)
		}
	}
}

// Reads of a test come from the disk: what another program has read is not taken from the page cache.
func TestReadsAreDirect(t *testing.T) {
	b := onLoop(t, 16<<20)
	d, err := block.OpenDirect(b.disk, false)
	must(t, err)
	defer d.Close()
	f, _ := d.File()
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_DIRECT == 0 {
		t.Errorf("flags %#x, %v", flags, err)
	}
	if out, err := exec.Command("blockdev", "--getsize64", b.disk).CombinedOutput(); err != nil ||
		strings.TrimSpace(string(out)) != fmt.Sprint(d.Size()) {
		t.Errorf("the size is %d; blockdev: %s, %v", d.Size(), out, err)
	}
}
