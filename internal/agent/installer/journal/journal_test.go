package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trivet-project/trivet"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, path string) *Journal {
	t.Helper()
	j, err := Open(path)
	must(t, err)
	t.Cleanup(func() { j.Close() })
	return j
}

func seqs(rs []trivet.Report) string {
	var b strings.Builder
	for _, r := range rs {
		fmt.Fprintf(&b, "%d:%s/%d/%s ", r.Seq, r.Action, r.Attempt, r.State)
	}
	return strings.TrimSpace(b.String())
}

func report(action string, state trivet.StepState) trivet.Report {
	return trivet.Report{Action: action, Attempt: 1, State: state}
}

func TestUnacknowledgedReportsSurviveARestart(t *testing.T) {
	for name, path := range map[string]string{"memory": "", "file": filepath.Join(t.TempDir(), "journal")} {
		t.Run(name, func(t *testing.T) {
			j := Memory()
			if path != "" {
				j = open(t, path)
			}
			must(t, j.Grant(7, 0, "uid", "boot"))
			must(t, j.Report(report("wipe", trivet.StepRunning)))
			must(t, j.Report(report("wipe", trivet.StepDone)))
			must(t, j.Report(report("image", trivet.StepRunning)))
			must(t, j.Ack(7, 2))
			must(t, j.Ack(6, 3)) // of another epoch
			must(t, j.Ack(7, 9)) // never written
			if path != "" {
				must(t, j.Close())
				j = open(t, path)
			}
			if got, want := seqs(j.Unacked()), "3:image/1/running"; got != want {
				t.Errorf("unacknowledged %q, want %q", got, want)
			}
			if g := j.Last(); g.Epoch != 7 || g.Workflow != "uid" || g.Boot != "boot" {
				t.Errorf("grant %+v", g)
			}
			must(t, j.Report(report("image", trivet.StepDone)))
			if got, want := seqs(j.Unacked()), "3:image/1/running 4:image/1/done"; got != want {
				t.Errorf("unacknowledged %q, want %q", got, want)
			}
			must(t, j.Grant(8, 5, "uid", "boot"))
			if got := seqs(j.Unacked()); got != "" || !j.Settled() {
				t.Errorf("a new epoch begins with %q", got)
			}
			must(t, j.Report(report("image", trivet.StepDone)))
			if got, want := seqs(j.Unacked()), "6:image/1/done"; got != want {
				t.Errorf("unacknowledged %q, want %q", got, want)
			}
		})
	}
}

func TestAnIncompleteLineEndsTheJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j := open(t, path)
	must(t, j.Grant(1, 0, "uid", "boot"))
	begin := j.region.base(j.region.gen) + j.region.end
	must(t, j.Report(report("a", trivet.StepRunning)))
	end := j.region.base(j.region.gen) + j.region.end
	must(t, j.Close())
	whole, err := os.ReadFile(path)
	must(t, err)
	for cut := begin; cut <= end; cut++ {
		incomplete := append([]byte{}, whole...)
		clear(incomplete[cut:end])
		must(t, os.WriteFile(path, incomplete, 0o600))
		got, err := Read(path)
		must(t, err)
		want := 1
		if cut == end {
			want = 2
		}
		if len(got) != want {
			t.Fatalf("cut at %d of %d..%d: %d entries, want %d", cut, begin, end, len(got), want)
		}
	}
	// The next line replaces the incomplete one.
	must(t, os.WriteFile(path, append(append([]byte{}, whole[:end-3]...), make([]byte, len(whole)-int(end)+3)...),
		0o600))
	j = open(t, path)
	must(t, j.Report(report("b", trivet.StepRunning)))
	must(t, j.Close())
	if got := seqs(open(t, path).Unacked()); got != "1:b/1/running" {
		t.Errorf("after the incomplete line: %q", got)
	}
}

func TestAFullJournalDropsOnlyWhatIsAcknowledged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	must(t, os.WriteFile(path, make([]byte, minBytes), 0o600))
	j := open(t, path)
	cause := strings.Repeat("x", 500)
	for epoch := int64(1); epoch <= 5; epoch++ {
		must(t, j.Grant(epoch, 0, "uid", "boot"))
		for i := range int64(40) {
			must(t, j.Report(trivet.Report{Action: "a", Attempt: int(i), State: trivet.StepFailed, Cause: cause}))
			if epoch < 5 {
				must(t, j.Ack(epoch, i+1))
			}
		}
	}
	must(t, j.Close())
	j = open(t, path)
	if got := j.Unacked(); len(got) != 40 || got[0].Seq != 1 || got[39].Seq != 40 {
		t.Fatalf("%d unacknowledged reports, want 40", len(got))
	}
	var err error
	for n := 0; err == nil && n < 1000; n++ {
		err = j.Report(trivet.Report{Action: "b", State: trivet.StepFailed, Cause: cause})
	}
	if !errors.Is(err, ErrFull) {
		t.Fatalf("a journal full of what is not acknowledged: %v", err)
	}
	before := len(j.Unacked())
	must(t, j.Ack(5, 40))
	must(t, j.Report(report("c", trivet.StepDone)))
	must(t, j.Close())
	if got := open(t, path).Unacked(); len(got) != before-40+1 {
		t.Errorf("%d unacknowledged after compaction, want %d", len(got), before-40+1)
	}
}

// A report that did not fit is not left out when a shorter one fits after it: the heads accept reports in order only.
func TestAReportThatDidNotFitIsWrittenLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	must(t, os.WriteFile(path, make([]byte, minBytes), 0o600))
	j := open(t, path)
	must(t, j.Grant(1, 0, "uid", "boot"))
	var err error
	for size := 2000; size > 100; size /= 2 { // leave less room than the long report below needs
		for err = nil; err == nil; {
			err = j.Report(trivet.Report{Action: "b", State: trivet.StepFailed, Cause: strings.Repeat("x", size)})
		}
	}
	if !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
	want := len(j.Unacked())
	must(t, j.Ack(1, 2))
	must(t, j.Report(report("c", trivet.StepDone)))
	must(t, j.Close())
	got := open(t, path).Unacked()
	if len(got) != want-2+1 {
		t.Errorf("%d unacknowledged reports, want %d", len(got), want-2+1)
	}
	for i, r := range got {
		if r.Seq != int64(i)+3 {
			t.Fatalf("report %d has number %d", i, r.Seq)
		}
	}
}

func TestACrashDuringCompactionKeepsTheOldHalf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j := open(t, path)
	must(t, j.Grant(1, 0, "uid", "boot"))
	must(t, j.Report(report("a", trivet.StepDone)))
	old, err := os.ReadFile(path)
	must(t, err)
	must(t, j.region.rewrite(j.entries))
	other := j.region.base(j.region.gen)
	must(t, j.Close())
	changed, err := os.ReadFile(path)
	must(t, err)
	copy(changed[other:other+int64(headerBytes)], old[other:]) // the header is written last: it was not reached
	must(t, os.WriteFile(path, changed, 0o600))
	if got := seqs(open(t, path).Unacked()); got != "1:a/1/done" {
		t.Errorf("got %q", got)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	must(t, os.WriteFile(data, []byte(strings.Repeat("other data ", 8192)), 0o600))
	if _, err := Open(data); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a file with data: %v", err)
	}
	small := filepath.Join(dir, "small")
	must(t, os.WriteFile(small, make([]byte, 512), 0o600))
	if _, err := Open(small); err == nil {
		t.Error("a file that is too small was accepted")
	}
	held := filepath.Join(dir, "held")
	open(t, held)
	if _, err := Open(held); err == nil {
		t.Error("a journal was opened twice")
	}
	if _, err := Open("/dev/trivet-no-such-device"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a device that does not exist: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	header, chain := encodeHeader(3)
	line, chain, _ := encode(Entry{Epoch: 1, Workflow: "u"}, chain)
	r := report("a", trivet.StepDone)
	second, _, _ := encode(Entry{Epoch: 1, Report: &r}, chain)
	whole := append(append(header, line...), second...)
	f.Add(whole)
	f.Add(whole[:len(whole)-4])
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		gen, ok := parseHeader(b)
		if !ok {
			return
		}
		entries, end, _ := parse(b, gen)
		if end > int64(len(b)) {
			t.Fatalf("end %d of %d bytes", end, len(b))
		}
		// What is read, written again and read again, is the same.
		again, chain := encodeHeader(gen)
		for _, e := range entries {
			line, next, err := encode(e, chain)
			if err != nil {
				return // JSON cannot represent the time
			}
			again, chain = append(again, line...), next
		}
		twice, _, _ := parse(again, gen)
		if diff := cmp.Diff(entries, twice); diff != "" {
			t.Fatalf("read twice:\n%s", diff)
		}
	})
}
