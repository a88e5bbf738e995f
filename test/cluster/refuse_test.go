package cluster

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/testhead"
)

// A firewall at the leader refuses connections in its name. While its streams live, that is no sign of its end. Where
// one other head takes the leader for ended, the leader keeps its quorum and its term. Where both do, an election
// follows at most, and no write is lost.
func TestLeaderRefusesConnections(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	p := three(t)
	p.lossy, p.heartbeat = true, "2s" // a busy computer causes no election by itself
	r := &refusal{T: t, site: newHeads(t, newHistory(seedOf(t)), p)}
	r.begin()
	term := r.metric(r.leader, "trivet_store_term")

	r.refuse(r.others, nil)
	r.write(r.heads...)
	r.expect(term, 0, 0)

	r.refuse(r.others[:1], r.others[:1])
	r.await(r.others[0], "trivet_store_successions_total", 1)
	r.refuse(r.others[:1], nil)
	r.write(r.heads...)
	r.expect(term, 1, 0)
	if !r.leader.leads(t.Context()) {
		t.Error("the leader has lost its leadership to one head that took it for ended")
	}
	r.refuse(nil, nil)

	r.begin()
	r.leader.kill() // a head takes the leader of a term for ended once
	r.write(r.others...)
	if err := errors.Join(r.leader.start(""), r.leader.ready(t.Context())); err != nil {
		t.Fatal(err)
	}
	r.begin()
	before := []float64{r.successions(0), r.successions(1)}
	r.refuse(r.others, r.others)
	for i, h := range r.others {
		r.await(h, "trivet_store_successions_total", before[i]+1)
	}
	r.write(r.others...)
	r.refuse(nil, nil)
	r.write(r.heads...)
	r.written()
	for _, end := range r.history.Deaths {
		t.Error(end)
	}
}

// refusal is a site whose leader has a firewall.
type refusal struct {
	*testing.T
	*site
	leader *head
	others []*head
	writes int
}

// begin waits until all heads are connected, and finds the leader.
func (r *refusal) begin() {
	r.Helper()
	for _, h := range r.heads {
		r.await(h, "trivet_store_streams", 4)
	}
	var err error
	if r.leader, err = r.site.leader(r.Context()); err != nil {
		r.Fatal(err)
	}
	r.others = nil
	for _, h := range r.heads {
		if h != r.leader {
			r.others = append(r.others, h)
		}
	}
}

// refuse replaces the rules of the leader's firewall. New connections of some heads are refused, and all packets of
// some on connections that the leader has opened to them, which ends these.
func (r *refusal) refuse(connections, streams []*head) {
	r.Helper()
	var b strings.Builder
	b.WriteString("table inet refuse\ndelete table inet refuse\ntable inet refuse {\nchain pass {\n" +
		"type filter hook input priority 0;\n")
	for _, h := range connections {
		fmt.Fprintf(&b, "ip saddr %s tcp dport 7480 tcp flags & (syn | ack) == syn reject with tcp reset\n", h.address)
	}
	for _, h := range streams {
		fmt.Fprintf(&b, "ip saddr %s tcp sport 7480 reject with tcp reset\n", h.address)
	}
	b.WriteString("}\n}\n")
	cmd := exec.Command("ip", "netns", "exec", r.leader.port, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(b.String())
	if err := run(cmd); err != nil {
		r.Fatal(err)
	}
}

// write creates a record by each of some heads.
func (r *refusal) write(by ...*head) {
	r.Helper()
	for _, h := range by {
		if err := r.writeBy(r.Context(), h, fmt.Sprint("write", r.writes)); err != nil {
			r.Fatalf("a write by %s: %v", h.port, err)
		}
		r.writes++
	}
}

// written expects all records that were created.
func (r *refusal) written() {
	r.Helper()
	c, err := r.client(testhead.Timeout, r.heads...)
	if err != nil {
		r.Fatal(err)
	}
	defer c.Close()
	for i := range r.writes {
		if _, err := client.Of[trivet.Account](c).Get(r.Context(), fmt.Sprint("write", i)); err != nil {
			r.Error(err)
		}
	}
}

// expect expects the term of all heads, and how often the others have taken the leader for ended.
func (r *refusal) expect(term, one, other float64) {
	r.Helper()
	for _, h := range r.heads {
		if got := r.metric(h, "trivet_store_term"); got != term {
			r.Errorf("%s: term %v, want %v", h.port, got, term)
		}
	}
	for i, want := range []float64{one, other} {
		if got := r.successions(i); got != want {
			r.Errorf("%s took the leader for ended %v times, want %v", r.others[i].port, got, want)
		}
	}
}

// successions returns how often one of the others took a leader for ended.
func (r *refusal) successions(i int) float64 {
	r.Helper()
	return r.metric(r.others[i], "trivet_store_successions_total")
}

func (r *refusal) metric(h *head, name string) float64 {
	r.Helper()
	value, err := h.metric(r.Context(), name)
	if err != nil {
		r.Fatal(err)
	}
	return value
}

// await waits until a metric has a value.
func (r *refusal) await(h *head, name string, want float64) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), testhead.Timeout)
	defer cancel()
	err := testhead.Eventually(ctx, func() error {
		got, err := h.metric(ctx, name)
		if err == nil && got != want {
			err = fmt.Errorf("it is %v", got)
		}
		return err
	})
	if err != nil {
		r.Fatalf("%s: %s is not %v: %v", h.port, name, want, err)
	}
}
