package heads_test

import (
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// cut starts a head and kills it as soon as it has made each of these files, in turn.
func (h *head) cut(args []string, files ...string) {
	h.Helper()
	for _, file := range files {
		h.start(args...)
		for late := time.Now().Add(patience); ; time.Sleep(time.Millisecond) { // to be there in time
			if found, err := filepath.Glob(filepath.Join(h.dir, file)); err == nil && len(found) > 0 {
				break
			}
			if time.Now().After(late) {
				h.Fatalf("%s has not made %s:\n%s", h.name, file, h.log)
			}
		}
		h.kill()
	}
}

// A first start that is cut off anywhere is gone on with at the next.
func TestFirstStartIsCutOff(t *testing.T) {
	for _, file := range []string{"keys", "head.json", "store/etcd/member/snap", "store/etcd/member/snap/db", "store/etcd/member/wal", "store/etcd/member/wal/*.wal", "blobs"} {
		t.Run(file, func(t *testing.T) {
			h := newHead(t, "head0")
			h.cut(nil, file)
			h.up()
			h.must("get", "heads")
		})
	}
}

// A join that is cut off anywhere, on either side, is gone on with: there is one new head, and it counts.
func TestJoinIsCutOff(t *testing.T) {
	h0 := newHead(t, "head0")
	h0.up()
	l := newLedger(t, h0.asks(patience, h0))
	n := newHead(t, "head1")
	args := []string{"--join", h0.api(), "--token", h0.token()}
	n.cut(args, "join-*", "keys", "peer.pem", "head.json", "store/etcd", "store/etcd/member/snap/db", "store/etcd/member/wal", "store/etcd/member/wal/*.wal")
	n.start(args...)
	h0.kill() // and the one that is asked
	h0.up()
	n.says("msg=ready")
	h0.counts("head1")
	l.write()
	l.read(h0.asks(patience, n))
	h0.onlyHeads("head0", "head1")
	if left, _ := filepath.Glob(filepath.Join(n.dir, "join-*")); len(left) != 0 {
		t.Errorf("left over: %v", left)
	}
}

// Two heads that join at once both get in, one after the other, with names of their own; two with one token do not.
func TestJoinsAtOnce(t *testing.T) {
	h0 := newHead(t, "head0")
	h0.up()
	a, b := newHead(t, "a"), newHead(t, "b")
	a.start("--join", h0.api(), "--token", h0.token())
	b.start("--join", h0.api(), "--token", h0.token())
	a.says("msg=ready")
	b.says("msg=ready")
	h0.counts("head1")
	h0.counts("head2")

	c, d := newHead(t, "c"), newHead(t, "d")
	token := h0.token()
	c.start("--join", h0.api(), "--token", token)
	d.start("--join", h0.api(), "--token", token)
	var loser *head
	select {
	case <-c.done:
		loser = c
	case <-d.done:
		loser = d
	}
	loser.refused("it was used", "trivet head token")
	h0.counts("head3")
	h0.onlyHeads("head0", "head1", "head2", "head3")
}

// onlyHeads wants these and no others, ever.
func (h *head) onlyHeads(want ...string) {
	h.Helper()
	v, err := h.view()
	if err != nil {
		h.Fatal(err)
	}
	var got []string
	for _, seen := range v.Heads {
		got = append(got, seen.Name)
	}
	if !slices.Equal(got, want) {
		h.Errorf("the heads are %v, want %v", got, want)
	}
}
