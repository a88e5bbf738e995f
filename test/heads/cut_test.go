package heads_test

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/trivet-project/trivet/internal/testhead"
)

// killAfterFile starts a head and kills it as soon as it has made a file, for each of these in order.
func (h *head) killAfterFile(args []string, files ...string) {
	h.Helper()
	for _, file := range files {
		h.Start(args...)
		// the kill must follow the file closely
		for late := time.Now().Add(testhead.Timeout); ; time.Sleep(time.Millisecond) {
			if found, err := filepath.Glob(filepath.Join(h.Dir, file)); err == nil && len(found) > 0 {
				break
			}
			if time.Now().After(late) {
				h.Fatalf("%s has not made %s:\n%s", h.Name, file, h.Log)
			}
		}
		h.Kill()
	}
}

// A first start that is killed at any point is completed by the next one.
func TestFirstStartIsKilled(t *testing.T) {
	t.Parallel()
	for _, file := range []string{
		"keys", "head.json", "store/etcd/member/snap", "store/etcd/member/snap/db", "store/etcd/member/wal",
		"store/etcd/member/wal/*.wal", "blobs",
	} {
		t.Run(file, func(t *testing.T) {
			h := newHead(t, "head0")
			h.killAfterFile(nil, file)
			h.Up()
			h.MustTrivet("get", "heads")
		})
	}
}

// A join that is killed at any point, on either side, is completed later: there is one new head, and it is a member.
func TestJoinIsKilled(t *testing.T) {
	t.Parallel()
	h0, l := startWithLedger(t)
	n := newHead(t, "head1")
	args := []string{"--join", h0.API(), "--token", h0.token()}
	n.killAfterFile(args, "join-*", "keys", "peer.pem", "head.json", "store/etcd", "store/etcd/member/snap/db",
		"store/etcd/member/wal", "store/etcd/member/wal/*.wal")
	n.Start(args...)
	h0.Kill() // the head that it joins, too
	h0.Up()
	n.AwaitLog("msg=ready")
	h0.awaitMember("head1")
	l.write()
	l.read(h0.client(n))
	h0.expectHeads("head0", "head1")
	if left, _ := filepath.Glob(filepath.Join(n.Dir, "join-*")); len(left) != 0 {
		t.Errorf("remaining files: %v", left)
	}
}

// Two heads that join at once are both admitted, one after the other, with names of their own; two with one token are
// not.
func TestJoinsAtOnce(t *testing.T) {
	t.Parallel()
	h0 := startFirst(t)
	a, b := newHead(t, "a"), newHead(t, "b")
	a.Start("--join", h0.API(), "--token", h0.token())
	b.Start("--join", h0.API(), "--token", h0.token())
	a.AwaitLog("msg=ready")
	b.AwaitLog("msg=ready")
	h0.awaitMember("head1")
	h0.awaitMember("head2")

	c, d := newHead(t, "c"), newHead(t, "d")
	token := h0.token()
	c.Start("--join", h0.API(), "--token", token)
	d.Start("--join", h0.API(), "--token", token)
	var loser *head
	select {
	case <-c.Done():
		loser = c
	case <-d.Done():
		loser = d
	}
	loser.expectRefusal("it was used", "trivet head token")
	h0.awaitMember("head3")
	h0.expectHeads("head0", "head1", "head2", "head3")
}

// expectHeads expects exactly these heads, removed ones included.
func (h *head) expectHeads(want ...string) {
	h.Helper()
	v, err := h.view()
	if err != nil {
		h.Fatal(err)
	}
	var got []string
	for _, o := range v.Heads {
		got = append(got, o.Name)
	}
	if !slices.Equal(got, want) {
		h.Errorf("the heads are %v, want %v", got, want)
	}
}
