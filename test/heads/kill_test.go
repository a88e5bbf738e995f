package heads_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/takeover"
	"github.com/trivet-project/trivet/internal/testhead"
)

// seeds is how often a test kills heads at random moments; each time at others.
const seeds = 20

// soak skips a test that runs in make soak only.
func soak(t *testing.T) {
	t.Helper()
	if os.Getenv("TRIVET_SOAK") == "" {
		t.Skip("runs in make soak")
	}
	t.Parallel()
}

// killUntil kills heads by SIGKILL at random moments within intervals, one at a time, and starts each again, until
// something has ended.
func killUntil(t *testing.T, seed uint64, interval time.Duration, heads []*head, ended func() bool) (kills int) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 0))
	deadline := time.Now().Add(10 * time.Minute)
	for !ended() {
		if time.Now().After(deadline) {
			t.Fatalf("seed %d: it has not ended", seed)
		}
		time.Sleep(time.Duration(random.Int64N(int64(interval))))
		h := heads[random.IntN(len(heads))]
		h.Kill()
		time.Sleep(time.Duration(random.Int64N(int64(time.Second))))
		h.Start()
		h.awaitReadyAgain(3)
		kills++
	}
	return kills
}

// awaitReadyAgain waits until the head is ready. It starts it again where its process ends before, as a service manager
// does, so many times.
func (h *head) awaitReadyAgain(times int) {
	h.Helper()
	for range times {
		err := h.Process.Await(func() bool { return h.Log.Contains("msg=ready") }, time.Minute)
		if err == nil {
			return
		}
		if !h.Ended() {
			h.Fatalf("%s: %v", h.Name, err)
		}
		h.Start()
	}
	h.AwaitReady()
}

// The CA is rotated while heads and a witness are killed at random moments: it ends, all use the new one, and nothing
// that was acknowledged is lost.
func TestRotationWhileHeadsAreKilled(t *testing.T) {
	soak(t)
	h0, l := startWithLedger(t)
	h1 := h0.join("head1")
	all := []*head{h0, h1, h0.join("head2", "token", "--witness")}
	l.cl = h0.client(h0, h1)
	stop := l.underLoad()
	for seed := range uint64(seeds) {
		before := h0.rootCA(t).Pins()
		if _, err := l.cl.RotateKey(t.Context(), trivet.CAKey,
			trivet.RotateRequest{Grace: new(trivet.Duration(time.Second))}); err != nil {
			t.Fatal(err)
		}
		kills := killUntil(t, seed, 5*time.Second, all, func() bool {
			k, err := client.Of[trivet.Key](l.cl).Get(t.Context(), trivet.CAKey)
			return err == nil && !k.Rotating()
		})
		t.Logf("seed %d: rotated, with %d kills", seed, kills)
		now := h0.rootCA(t).Pins()
		for _, h := range all {
			h0.Await(h.Name+" has the new CA only", func() error {
				if pins := h.rootCA(t).Pins(); len(pins) != 1 || pins[0] != now[0] || pins[0] == before[0] {
					return fmt.Errorf("seed %d: it has %v, head0 %v, before %v", seed, pins, now, before)
				}
				return nil
			})
		}
	}
	l.acknowledged(stop(), h0.client(h0), h0.client(h1))
}

// A recovery of each form is killed at random moments, and run again: it ends, and nothing is lost that it had.
func TestRecoveriesAreKilled(t *testing.T) {
	soak(t)
	h0, l := startWithLedger(t)
	h1 := h0.join("head1")
	h2 := h0.join("head2")
	for range 20 {
		l.write()
	}
	dir := t.TempDir()
	key, backups := filepath.Join(dir, "recovery.key"), filepath.Join(dir, "backups")
	if err := os.WriteFile(key, []byte(h0.MustTrivet("backup", "key", "--yes")), 0o600); err != nil {
		t.Fatal(err)
	}
	h0.MustTrivet("backup", "create", "--to", backups)
	for _, h := range []*head{h0, h1, h2} {
		h.Stop()
	}
	for seed := range uint64(seeds) {
		random := rand.New(rand.NewPCG(seed, 1))
		for _, form := range []string{"--from-survivor", "--from-data-dir", "--from-backup"} {
			h := newHead(t, "head103")
			args := []string{"recover", "--data-dir", h.Dir, "--advertise", h.Address, "--yes", form}
			switch form {
			case "--from-survivor":
				if out, err := exec.Command("cp", "--archive", h1.Dir, h.Dir).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			case "--from-data-dir":
				args = append(args, h2.Dir)
			default:
				args = append(args, backups, "--key", key)
			}
			kills := runKilled(t, random, func() bool { return form != "--from-survivor" && isRecovered(h) }, args...)
			t.Logf("seed %d: %s, with %d kills", seed, form, kills)
			h.Up()
			l.read(h.client(h))
			h.Stop()
			if err := os.RemoveAll(h.Dir); err != nil { // each has the space of a store
				t.Fatal(err)
			}
		}
	}
}

// runKilled runs a command, which is killed at a random moment up to four times, until it has succeeded, or is
// complete.
func runKilled(t *testing.T, random *rand.Rand, complete func() bool, args ...string) (kills int) {
	t.Helper()
	for ; kills < 4; kills++ {
		var out bytes.Buffer
		cmd := exec.CommandContext(t.Context(), testhead.Program(t), args...)
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		kill := time.AfterFunc(time.Duration(random.Int64N(int64(2*time.Second))), func() { _ = cmd.Process.Kill() })
		err := cmd.Wait()
		kill.Stop()
		switch {
		case err == nil:
			return kills
		case cmd.ProcessState.Exited():
			t.Fatalf("%v, after %d kills: %v\n%s", args, kills, err, out.String())
		case complete():
			return kills + 1
		}
	}
	if out, err := exec.CommandContext(t.Context(), testhead.Program(t), args...).CombinedOutput(); err != nil {
		t.Fatalf("%v, after %d kills: %v\n%s", args, kills, err, out)
	}
	return kills
}

// The program is replaced while heads and a witness are killed at random moments: all run one program at the end,
// nothing that was acknowledged is lost, and the upgrade does not end without a reason.
func TestUpgradeWhileHeadsAreKilled(t *testing.T) {
	soak(t)
	builds := newBuilds(t)
	versions := []string{"v98.1.0", "v98.1.1"}
	programs := []string{builds.release(versions[0], string(trivet.CurrentRelease)),
		builds.release(versions[1], string(trivet.CurrentRelease))}
	h0, l := startWithLedger(t)
	h1 := h0.join("head1")
	all := []*head{h0, h1, h0.join("head2", "token", "--witness")}
	l.cl = h0.client(h0, h1)
	stop := l.underLoad()
	wanted := h0.versions()["head0"]
	for seed := range uint64(seeds) {
		h0.MustTrivet("upgrade", "run", programs[seed%2], "--yes", "--soak", "1s", "--no-wait")
		var u *trivet.Upgrade
		// each start again waits until all were well for some seconds
		kills := killUntil(t, seed, 25*time.Second, all, func() bool {
			now, err := client.Of[trivet.Upgrade](l.cl).Get(t.Context(), trivet.UpgradeName)
			u = now
			return err == nil && !u.InProgress()
		})
		t.Logf("seed %d: %s, with %d kills: %s", seed, u.Status.Phase, kills, u.Status.Cause)
		switch {
		case u.Status.Phase == trivet.UpgradeDone:
			wanted = versions[seed%2]
		case !strings.Contains(u.Status.Cause, "it ended 3 times before it was ready"): // it was killed so often
			t.Errorf("seed %d: it was reverted: %s", seed, u.Status.Cause)
		}
		h0.awaitVersions(map[string]string{"head0": wanted, "head1": wanted, "head2": wanted})
	}
	l.acknowledged(stop(), h0.client(h0), h0.client(h1))
}

// A head that is to take over is killed at random moments of that: it serves in the end, either as the first head of
// another incarnation or as the head that it was, and has everything.
func TestTakeoverIsKilled(t *testing.T) {
	soak(t)
	h0, l := startWithLedger(t)
	h1 := h0.join("head1", "token", "--standby")
	for range 20 {
		l.write()
	}
	h0.Await("the standby has all", func() error {
		a, errA := h0.view()
		b, errB := h1.view()
		if a.Revision != b.Revision {
			return fmt.Errorf("%d and %d, %w", a.Revision, b.Revision, errors.Join(errA, errB))
		}
		return nil
	})
	h1.Stop()
	h0.Stop()
	for seed := range uint64(seeds) {
		random := rand.New(rand.NewPCG(seed, 2))
		h := newHead(t, "head102")
		if out, err := exec.Command("cp", "--archive", h1.Dir, h.Dir).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if err := takeover.Write(h.Dir, "", "a test"); err != nil {
			t.Fatal(err)
		}
		kills := 0
		for ; kills < 3; kills++ {
			h.Start()
			time.Sleep(time.Duration(random.Int64N(int64(1500 * time.Millisecond))))
			h.Kill()
		}
		h.Up()
		v, err := h.view()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("seed %d: %d kills; it is %s, with a quorum: %t", seed, kills, v.Head, v.Quorum)
		if v.Head != "head102" || !v.Quorum {
			t.Errorf("seed %d: %+v", seed, v)
		}
		l.read(h.client(h))
		h.Stop()
		if err := os.RemoveAll(h.Dir); err != nil {
			t.Fatal(err)
		}
	}
}
