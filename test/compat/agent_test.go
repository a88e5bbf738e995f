package compat_test

import (
	"testing"

	"github.com/trivet-project/trivet"
)

// An agent of version 0.1.0 has its heads from its kernel's command line, and learns others as they tell it. Each of three heads is
// killed in turn while it works.
func TestOldAgent(t *testing.T) {
	h := newHead(t)
	h.up(newTrivet)
	h.furnish(newTrivet)
	heads := []*head{h, h.join("head1"), h.join("head2")}
	cl := h.asks(heads...)
	b := h.plugIn("m1", true, heads...)
	h.must(oldTrivet, "provision", "m1", "--template", "install", "--machine", "m1", "--no-wait")
	for i, action := range []string{"rest0", "rest1", "rest2"} {
		b.awaits(cl, action, trivet.StepRunning)
		heads[i].kill()
		heads[i].up(newTrivet)
	}
	b.succeeds(cl)
}

// An agent of this version works with a head of version 0.1.0, which is killed and comes back.
func TestNewAgent(t *testing.T) {
	h := newHead(t)
	h.up(oldTrivet)
	h.furnish(oldTrivet)
	cl := h.asks(h)
	b := h.plugIn("m1", false, h)
	h.must(newTrivet, "provision", "m1", "--template", "install", "--machine", "m1", "--no-wait")
	for _, action := range []string{"rest0", "rest1"} {
		b.awaits(cl, action, trivet.StepRunning)
		h.kill()
		h.up(oldTrivet)
	}
	b.succeeds(cl)
}
