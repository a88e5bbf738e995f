package heads_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A head that was removed is out for good: it ends by itself, does not come back with its old data, says how it can, and then is
// a new head, with the old data kept. A head that is replaced makes room when its successor joins.
func TestOutAndBack(t *testing.T) {
	h0 := newHead(t, "head0")
	h0.up()
	l := newLedger(t, h0.asks(patience, h0))
	h1, h2 := h0.join("head1"), h0.join("head2")

	t.Run("removed while it runs", func(t *testing.T) {
		if said := h0.must("head", "remove", "head2"); said != "head/head2 is removed" {
			t.Errorf("it says %q", said)
		}
		h2.refused("it was removed from cluster", "--rejoin --join URL --token TOKEN")
		if said := h0.must("head", "remove", "head2"); said != "head/head2 is removed already" {
			t.Errorf("it says %q", said)
		}
		l.write()
		if list := h0.must("head", "list"); strings.Contains(list, "head2") {
			t.Errorf("it is still listed:\n%s", list)
		}
		if h0.sees("head2", "removed").LastHeard != nil {
			t.Error("it is seen")
		}
		if script := h0.boots(); strings.Contains(script, h2.host) {
			t.Errorf("machines are sent to it:\n%s", script)
		}
	})
	t.Run("comes back", func(t *testing.T) {
		h2.start()
		h2.refused("it was removed from cluster", "--rejoin --join URL --token TOKEN")
		h2.start("--join", h0.api(), "--token", h0.token())
		h2.refused("it was removed from cluster", "--rejoin")
		if strings.Contains(h2.log.String(), "a member already") {
			t.Errorf("it says that it is a member:\n%s", h2.log)
		}
		h2.up("--join", h0.api(), "--token", h0.token(), "--rejoin")
		h0.counts("head3")
		if aside, _ := filepath.Glob(filepath.Join(h2.dir, "aside/head2-*/store/etcd")); len(aside) != 1 {
			t.Errorf("set aside: %v", aside)
		}
		l.write()
	})
	t.Run("removed while it is down", func(t *testing.T) {
		h2.kill()
		h0.sees("head3", "down")
		h0.must("head", "remove", "head3")
		l.write()
		h0.kill() // nobody can tell it
		h1.kill()
		h2.up()
		l.lone(h0, h2)
		h0.up()
		h2.refused("it was removed from cluster", "--rejoin")
		h1.up()
		l.write()
	})
	t.Run("replaced", func(t *testing.T) {
		h0.join("head4")
		h1.kill()
		n := newHead(h0.T, "head5") // it outlives this part
		n.start("--join", h0.api(), "--token", h0.token("replace", "head1"))
		n.says("msg=ready")
		h0.counts("head5")
		h0.sees("head1", "removed")
		l.write()
		l.read(h0.asks(patience, n))
		h1.start()
		h1.refused("it was removed from cluster", "--rejoin")
	})
	t.Run("not the last one", func(t *testing.T) {
		h0.must("head", "remove", "head4")
		h0.must("head", "remove", "head5")
		_, all, err := h0.trivet("head", "remove", "head0")
		if err == nil || !strings.Contains(all, "no other full head is a member") || !strings.Contains(all, "trivet head token") {
			t.Errorf("%v: %s", err, all)
		}
		l.write()
	})
	h0.onlyHeads("head0", "head1", "head2", "head3", "head4", "head5")
}

// The leader can be removed like any other, by itself too; the others go on, and a client that knows them does not notice.
func TestLeaderIsRemoved(t *testing.T) {
	h0 := newHead(t, "head0")
	h0.up()
	l := newLedger(t, h0.asks(patience, h0))
	h1 := h0.join("head1")
	h2 := h0.join("head2")
	l.cl = h0.asks(patience, h0, h1, h2)
	h0.await("knows the others", func() error {
		text, err := os.ReadFile(filepath.Join(h0.dir, "admin.yaml"))
		if err == nil && !strings.Contains(string(text), h2.api()) {
			err = os.ErrNotExist
		}
		return err
	})
	if said := h0.must("head", "remove", "head0"); said != "head/head0 is removed" {
		t.Errorf("it says %q", said)
	}
	h0.refused("it was removed from cluster")
	l.write()
	l.read(h0.asks(patience, h1))
	l.read(h0.asks(patience, h2))
}

// A copy of a head's data does not run beside it.
func TestCopyOfAHead(t *testing.T) {
	h0 := newHead(t, "head0")
	h0.up()
	l := newLedger(t, h0.asks(patience, h0))
	h0.stop()
	twin := newHead(t, "head0's twin")
	if out, err := exec.Command("cp", "-a", h0.dir, twin.dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	h0.up()
	twin.start()
	twin.refused("head0 runs at "+h0.api()+" already", "--rejoin")
	l.write()
	h0.stop()
	h0.host = ownHost() // one that moves is not two
	h0.up()
	h0.must("get", "heads")
}
