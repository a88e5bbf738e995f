// Package heads_test tests several heads under failure: each is the real program on a loopback address of its own.
// They join, are killed and return, with wrong tokens, copied data and foreign certificates. What was acknowledged must
// still exist, and a refusal must state what to do.
package heads_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/testhead"
)

// head is a head of a cluster.
type head struct{ *testhead.Head }

// newHead returns a head that has not started yet.
func newHead(t *testing.T, name string) *head {
	t.Helper()
	return &head{testhead.NewHead(t, name)}
}

// startFirst starts the first head of a cluster.
func startFirst(t *testing.T) *head {
	t.Helper()
	h := newHead(t, "head0")
	h.Up()
	return h
}

// startWithLedger starts the first head of a cluster, and a ledger there.
func startWithLedger(t *testing.T) (*head, *ledger) {
	t.Helper()
	h := startFirst(t)
	return h, newLedger(t, h.client(h))
}

// expectRefusal expects a head that ends with status 1, these texts in its log, and a hint.
func (h *head) expectRefusal(texts ...string) {
	h.Helper()
	h.ExpectFailure(append(texts, "hint:")...)
}

// token issues a join token.
func (h *head) token(args ...string) string {
	h.Helper()
	if len(args) == 0 {
		args = []string{"token"}
	}
	return h.MustTrivet(append([]string{"head"}, args...)...)
}

// issueToken gives the clients of this head a token of their own: the head's credential is revoked when it is removed.
func (h *head) issueToken() {
	h.Helper()
	h.ClientToken = h.MustTrivet("token", "issue", "admin")
}

// join starts a head that joins this one's cluster and waits until it is a member.
func (h *head) join(name string, args ...string) *head {
	h.Helper()
	n := newHead(h.T, name)
	n.Up("--join", h.API(), "--token", h.token(args...))
	h.awaitMember(name)
	return n
}

// view returns the cluster as this head sees it.
func (h *head) view() (v trivet.Cluster, err error) {
	r, err := h.Trivet("head", "list", "--all", "-o", "json")
	if err != nil {
		return v, err
	}
	return v, json.Unmarshal([]byte(r.Stdout), &v)
}

// awaitState waits until a head is in one of these states.
func (h *head) awaitState(name string, states ...string) (last trivet.HeadView) {
	h.Helper()
	h.Await(fmt.Sprintf("%s is %s", name, states), func() error {
		v, err := h.view()
		i := slices.IndexFunc(v.Heads, func(o trivet.HeadView) bool { return o.Name == name })
		if i >= 0 && slices.Contains(states, v.Heads[i].State) {
			last = v.Heads[i]
			return nil
		}
		return errors.Join(err, fmt.Errorf("the heads are %+v", v.Heads))
	})
	return last
}

// awaitMember waits until a head is a member.
func (h *head) awaitMember(name string) {
	h.Helper()
	h.awaitState(name, "member", "leader")
}

// client returns a client of some heads with this head's credential. It retries for as long as a test waits.
func (h *head) client(heads ...*head) *client.Client {
	h.Helper()
	return h.clientFor(testhead.Timeout, heads...)
}

// clientOnce returns a client that does not retry.
func (h *head) clientOnce(heads ...*head) *client.Client {
	h.Helper()
	return h.clientFor(-1, heads...)
}

func (h *head) clientFor(wait time.Duration, heads ...*head) *client.Client {
	h.Helper()
	var of []*testhead.Head
	for _, o := range heads {
		of = append(of, o.Head)
	}
	return h.Client(wait, of...)
}

// ledger writes labels to one machine, and checks that those that were acknowledged are still there.
type ledger struct {
	*testing.T
	cl     *client.Client
	writes int
}

const (
	machine  = "m1"
	knownMAC = "52:54:00:00:00:01"
)

func newLedger(t *testing.T, cl *client.Client) *ledger {
	t.Helper()
	n := &trivet.Network{Meta: trivet.Meta{Name: "lo"}, Spec: trivet.NetworkSpec{
		CIDR:   netip.MustParsePrefix("127.0.0.0/8"),
		Ranges: []trivet.Range{{From: netip.MustParseAddr("127.9.9.1"), To: netip.MustParseAddr("127.9.9.200")}},
	}}
	if _, err := client.Of[trivet.Network](cl).Create(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	createMachine(t, cl)
	return &ledger{T: t, cl: cl}
}

func createMachine(t *testing.T, cl *client.Client) {
	t.Helper()
	m := &trivet.Machine{Meta: trivet.Meta{Name: machine},
		Spec: trivet.MachineSpec{NICs: []trivet.NIC{{MAC: knownMAC}}}}
	if _, err := client.Of[trivet.Machine](cl).Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

// write must succeed.
func (l *ledger) write() {
	l.Helper()
	l.writes++
	patch := fmt.Appendf(nil, `{"labels":{"write%d":"done"}}`, l.writes)
	ctx, cancel := context.WithTimeout(l.Context(), testhead.Timeout)
	defer cancel()
	if _, err := client.Of[trivet.Machine](l.cl).Patch(ctx, machine, patch, 0); err != nil {
		l.Fatalf("write %d: %v", l.writes, err)
	}
}

// read expects all writes. A head reads from its own copy, which may be a moment behind.
func (l *ledger) read(cl *client.Client) {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.Context(), testhead.Timeout)
	defer cancel()
	err := testhead.Eventually(ctx, func() error {
		m, err := client.Of[trivet.Machine](cl).Get(ctx, machine)
		if err != nil {
			return err
		}
		for n := 1; n <= l.writes; n++ {
			if m.Labels[fmt.Sprint("write", n)] != "done" {
				err = errors.Join(err, fmt.Errorf("acknowledged write %d is lost", n))
			}
		}
		return err
	})
	if err != nil {
		l.Error(err)
	}
}
