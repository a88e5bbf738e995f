package heads_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trivet-project/trivet/internal/testhead"
)

// removal is a cluster of three heads, of which some are removed.
type removal struct {
	l          *ledger
	h0, h1, h2 *head
}

// A head that was removed ends by itself, does not return with its old data, reports how to rejoin, and then is a new
// head, with the old data archived. A head that is replaced is removed when its successor joins.
func TestRemoveAndRejoin(t *testing.T) {
	t.Parallel()
	h0, l := startWithLedger(t)
	r := &removal{l: l, h0: h0}
	r.h1, r.h2 = h0.join("head1"), h0.join("head2")
	t.Run("removed while it runs", r.whileItRuns)
	t.Run("rejoins", r.rejoins)
	t.Run("removed while it is down", r.whileItIsDown)
	t.Run("replaced", r.replaced)
	t.Run("not the last one", r.notTheLast)
	h0.expectHeads("head0", "head1", "head2", "head3", "head4", "head5")
}

func (r *removal) whileItRuns(t *testing.T) {
	h0, h2, l := r.h0, r.h2, r.l
	if out := h0.MustTrivet("head", "remove", "head2", "--yes"); out != "head/head2 removed" {
		t.Errorf("the output is %q", out)
	}
	h2.expectRefusal("it was removed from cluster", "--rejoin --join URL --token TOKEN")
	if out := h0.MustTrivet("head", "remove", "head2", "--yes"); out != "head/head2 is already removed" {
		t.Errorf("the output is %q", out)
	}
	l.write()
	if list := h0.MustTrivet("head", "list"); strings.Contains(list, "head2") {
		t.Errorf("it is still listed:\n%s", list)
	}
	if h0.awaitState("head2", "removed").LastHeard != nil {
		t.Error("it is still monitored")
	}
	if script := h0.MustBoot(knownMAC); strings.Contains(script, h2.Address) {
		t.Errorf("machines are directed to it:\n%s", script)
	}
}

func (r *removal) rejoins(t *testing.T) {
	h0, h2, l := r.h0, r.h2, r.l
	h2.Start()
	h2.expectRefusal("it was removed from cluster", "--rejoin --join URL --token TOKEN")
	h2.Start("--join", h0.API(), "--token", h0.token())
	h2.expectRefusal("it was removed from cluster", "--rejoin")
	if strings.Contains(h2.Log.String(), "a member already") {
		t.Errorf("it logs that it is a member:\n%s", h2.Log)
	}
	h2.Up("--join", h0.API(), "--token", h0.token(), "--rejoin")
	h0.awaitMember("head3")
	if aside, _ := filepath.Glob(filepath.Join(h2.Dir, "aside/head2-*/store/etcd")); len(aside) != 1 {
		t.Errorf("archived: %v", aside)
	}
	l.write()
}

func (r *removal) whileItIsDown(_ *testing.T) {
	h0, h1, h2, l := r.h0, r.h1, r.h2, r.l
	h2.Kill()
	h0.awaitState("head3", "down")
	h0.MustTrivet("head", "remove", "head3", "--yes")
	l.write()
	h0.Kill() // no head can notify it
	h1.Kill()
	h2.Up()
	l.readsWithoutQuorum(h0, h2)
	h0.Up()
	h2.expectRefusal("it was removed from cluster", "--rejoin")
	h1.Up()
	l.write()
}

func (r *removal) replaced(_ *testing.T) {
	h0, h1, l := r.h0, r.h1, r.l
	h0.join("head4")
	h1.Kill()
	n := newHead(h0.T, "head5") // it outlives the subtest
	n.Start("--join", h0.API(), "--token", h0.token("replace", "head1"))
	n.AwaitLog("msg=ready")
	h0.awaitMember("head5")
	h0.awaitState("head1", "removed")
	l.write()
	l.read(h0.client(n))
	h1.Start()
	h1.expectRefusal("it was removed from cluster", "--rejoin")
}

func (r *removal) notTheLast(t *testing.T) {
	h0, l := r.h0, r.l
	h0.MustTrivet("head", "remove", "head4", "--yes")
	h0.MustTrivet("head", "remove", "head5", "--yes")
	out, err := h0.Trivet("head", "remove", "head0", "--yes")
	if err == nil || !strings.Contains(out.All, "no other full head that votes stays") ||
		!strings.Contains(out.All, "trivet head token") {
		t.Errorf("%v: %s", err, out.All)
	}
	l.write()
}

// The leader can be removed like any other head, also through itself; the others continue, and a client that knows
// them does not notice.
func TestLeaderIsRemoved(t *testing.T) {
	t.Parallel()
	h0, l := startWithLedger(t)
	h1 := h0.join("head1")
	h2 := h0.join("head2")
	h0.issueToken()
	l.cl = h0.client(h0, h1, h2)
	h0.Await("knows the others", func() error {
		text, err := os.ReadFile(filepath.Join(h0.Dir, "admin.yaml"))
		if err == nil && !strings.Contains(string(text), h2.API()) {
			err = os.ErrNotExist
		}
		return err
	})
	if out := h0.MustTrivet("head", "remove", "head0", "--yes"); out != "head/head0 removed" {
		t.Errorf("the output is %q", out)
	}
	h0.expectRefusal("it was removed from cluster")
	l.write()
	l.read(h0.client(h1))
	l.read(h0.client(h2))
}

// A copy of a head's data does not run at the same time as the head.
func TestCopyOfAHead(t *testing.T) {
	t.Parallel()
	h0, l := startWithLedger(t)
	h0.Stop()
	duplicate := newHead(t, "the copy")
	if out, err := exec.Command("cp", "-a", h0.Dir, duplicate.Dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	h0.Up()
	duplicate.Start()
	duplicate.expectRefusal("head0 runs at "+h0.API()+" already", "--rejoin")
	l.write()
	h0.Stop()
	h0.Address = testhead.NewAddress() // a new address is not a second head
	h0.Up()
	h0.MustTrivet("get", "heads")
}
