package head_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/testhead"
	"github.com/trivet-project/trivet/test/faultfs"
)

// tryLabel writes a label of the known machine.
func (h *head) tryLabel(value string) error {
	patch := fmt.Appendf(nil, `{"labels":{"wanted":%q}}`, value)
	_, err := client.Of[trivet.Machine](h.Client(-1)).Patch(h.Context(), "m1", patch, 0)
	return err
}

func (h *head) label() string {
	h.Helper()
	m, err := client.Of[trivet.Machine](h.Client(-1)).Get(h.Context(), "m1")
	if err != nil {
		h.Fatal(err)
	}
	return m.Labels["wanted"]
}

// A head on a slow disk logs that, serves reads and boots as before, and writes slowly. When a write exceeds its time
// limit, the error reports that the outcome is unknown, and why; no operator is needed when the disk is fast again.
func TestSlowDisk(t *testing.T) {
	disk := faultfs.New(t)
	h := newHeadOn(t, disk.Dir())
	t.Cleanup(func() { disk.Set(faultfs.Faults{}) }) // before the head is stopped: no process ends in a sync
	disk.Set(faultfs.Faults{SyncDelay: 300 * time.Millisecond})
	h.mustServe()
	if err := h.tryLabel("slow"); err != nil || h.label() != "slow" {
		t.Errorf("a slow write: %v", err)
	}
	h.mustServeUntil("slow disk: every write waits for it")
	h.awaitLogs("dir=" + h.Dir)

	disk.Set(faultfs.Faults{SyncDelay: time.Hour})
	written := make(chan error)
	go func() { written <- h.tryLabel("stuck") }()
	h.mustRead()
	h.mustBoot()
	if err := <-written; !errors.Is(err, trivet.ErrUnknown) || !strings.Contains(err.Error(), "slow disk") {
		t.Errorf("a write that is stuck: %v", err)
	}
	if got := h.label(); got != "slow" {
		t.Errorf("what lasts is not known, and %q is read", got)
	}
	h.mustRead()
	h.mustBoot()

	disk.Set(faultfs.Faults{})
	h.mustServe()
	if err := h.tryLabel("fast"); err != nil || h.label() != "fast" {
		t.Errorf("a write on a disk that is fast again: %v", err)
	}
	h.mustRecover()
	if got := h.label(); got != "fast" { // the stuck write does not come later
		t.Errorf("the label is %q", got)
	}
}

// awaitLogs waits until the head has logged these texts.
func (h *head) awaitLogs(words ...string) {
	h.Helper()
	for _, word := range words {
		if !h.Log.Await(word, timeout) {
			h.Errorf("it has not logged %q:\n%s", word, h.Log)
		}
	}
}

// A head starts on a disk that takes seconds for each sync, serves reads and boots, and writes as soon as it can.
func TestStartOnSlowDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("a start takes some ten syncs, each three seconds")
	}
	disk := faultfs.New(t)
	h := newHeadOn(t, disk.Dir())
	h.mustServe()
	h.Signal(syscall.SIGKILL)
	<-h.Done()
	disk.Set(faultfs.Faults{SyncDelay: 3 * time.Second})
	h = launch(t, h.Dir, testhead.NewAddress())
	if !h.Log.Await("msg=ready", 4*timeout) {
		t.Fatal("the head is not ready")
	}
	h.useOwnEndpoint()
	h.mustRead()
	h.mustBoot()
	h.awaitLogs("slow disk")
	disk.Set(faultfs.Faults{})
	h.mustServe()
	h.mustRecover()
}

// mustRecover writes until the head has noticed that its disk is fast again.
func (h *head) mustRecover() {
	h.Helper()
	h.mustServeUntil("the disk is no longer slow")
}

// mustServeUntil writes until the head has logged a text: it judges its disk by the syncs of the last seconds.
func (h *head) mustServeUntil(word string) {
	h.Helper()
	for late := time.Now().Add(timeout); !h.Log.Await(word, 100*time.Millisecond); {
		if time.Now().After(late) {
			h.Fatalf("the head has not logged %q", word)
		}
		h.mustServe()
	}
}

// What was acknowledged exists after power cuts, whatever else of the unsynced writes is: all of it, none, or some.
func TestPowerCut(t *testing.T) {
	disk := faultfs.New(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	h := newHeadOn(t, disk.Dir())
	var acknowledged atomic.Int64
	for round := range 6 {
		imported := h.importImage(rng, fmt.Sprint("image", round))
		last := h.writeUntilKilled(&acknowledged, int64(1+rng.IntN(100)))
		var keep *rand.Rand
		if round%2 == 1 {
			keep = rng
		}
		if err := disk.Cut(keep); err != nil {
			t.Fatal(err)
		}
		h = startHead(t, h.Dir)
		got, err := strconv.ParseInt(h.label(), 10, 64)
		if err != nil || got < acknowledged.Load() || got > last {
			t.Errorf("round %d: write %d was acknowledged and %d begun, and the label is %q",
				round, acknowledged.Load(), last, h.label())
		}
		acknowledged.Store(got)
		h.mustHave(imported)
		h.mustServe()
	}
}

// writeUntilKilled writes numbers, each after the one before was acknowledged, and kills the head after some. It
// returns the number that was begun last.
func (h *head) writeUntilKilled(acknowledged *atomic.Int64, after int64) (last int64) {
	enough := acknowledged.Load() + after
	for last = acknowledged.Load() + 1; ; last++ {
		if last > enough { // while this one is under way
			go h.Kill()
		}
		if h.tryLabel(strconv.FormatInt(last, 10)) != nil {
			<-h.Done()
			return last
		}
		acknowledged.Store(last)
	}
}

// importImage imports some megabytes, and returns their digest.
func (h *head) importImage(rng *rand.Rand, name string) string {
	h.Helper()
	content := make([]byte, 1<<20+rng.IntN(8<<20))
	_, _ = rand.NewChaCha8([32]byte{byte(rng.IntN(256))}).Read(content)
	path := filepath.Join(h.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		h.Fatal(err)
	}
	if out, err := h.Trivet("image", "import", path, "--name", name, "--format", "raw"); err != nil {
		h.Fatalf("import: %v\n%s", err, out)
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(content))
}

// mustHave gets a blob as machines do.
func (h *head) mustHave(digest string) {
	h.Helper()
	resp, err := http.Get("http://" + h.Address + ":7481/blob/" + digest)
	if err != nil {
		h.Errorf("blob: %v", err)
		return
	}
	defer resp.Body.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || fmt.Sprintf("sha256:%x", sum.Sum(nil)) != digest {
		h.Errorf("blob %s: %s, %v; it has %x", digest, resp.Status, err, sum.Sum(nil))
	}
}

// A disk that lies about syncs loses what was acknowledged: the tests above would see that.
func TestLyingDisk(t *testing.T) {
	disk := faultfs.New(t)
	h := newHeadOn(t, disk.Dir())
	if err := h.tryLabel("1"); err != nil {
		t.Fatal(err)
	}
	disk.Set(faultfs.Faults{Lie: true})
	if err := h.tryLabel("2"); err != nil {
		t.Fatal(err)
	}
	h.Signal(syscall.SIGKILL)
	<-h.Done()
	if err := disk.Cut(nil); err != nil {
		t.Fatal(err)
	}
	disk.Set(faultfs.Faults{})
	if got := startHead(t, h.Dir).label(); got != "1" {
		t.Errorf("the label is %q", got)
	}
}

// A write that the store's disk fails is never acknowledged: the head ends and logs why. With a good disk it starts.
func TestStoreDiskErrors(t *testing.T) {
	for name, faults := range map[string]faultfs.Faults{
		"sync":  {SyncError: syscall.EIO, Under: "data/store"},
		"write": {WriteError: syscall.EIO, Under: "data/store"},
	} {
		t.Run(name, func(t *testing.T) {
			disk := faultfs.New(t)
			h := newHeadOn(t, disk.Dir())
			if err := h.tryLabel("before"); err != nil {
				t.Fatal(err)
			}
			disk.Set(faults)
			if err := h.tryLabel("lost"); err == nil {
				t.Error("a write was acknowledged that the disk did not accept")
			}
			h.ExpectFailure("the store's member failed", "input/output error", "hint:")
			launch(t, h.Dir, testhead.NewAddress()).ExpectFailure("input/output error", "hint:")
			disk.Set(faultfs.Faults{})
			if err := disk.Cut(nil); err != nil {
				t.Fatal(err)
			}
			h = startHead(t, h.Dir)
			if got := h.label(); got != "before" {
				t.Errorf("the label is %q", got)
			}
			h.mustServe()
		})
	}
}

// An image that the disk does not accept is not stored, and the head does its other work.
func TestBlobDiskErrors(t *testing.T) {
	disk := faultfs.New(t)
	h := newHeadOn(t, disk.Dir())
	image := write(t, "a.raw", bytes.Repeat([]byte{1}, 1<<20))
	for _, faults := range []faultfs.Faults{
		{SyncError: syscall.EIO, Under: "data/blobs"}, {WriteError: syscall.EIO, Under: "data/blobs"},
	} {
		disk.Set(faults)
		h.mustFail(t, []string{"image", "import", image, "--name", "a", "--format", "raw"}, "input/output error")
		h.mustServe()
	}
	disk.Set(faultfs.Faults{WriteError: syscall.ENOSPC, Under: "data/blobs"})
	h.mustFail(t, []string{"image", "import", image, "--name", "a", "--format", "raw"}, "disk is full", "hint:")
	disk.Set(faultfs.Faults{})
	if out, err := h.Trivet("image", "import", image, "--name", "a", "--format", "raw"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
