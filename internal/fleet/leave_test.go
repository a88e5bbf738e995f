package fleet_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/store"
)

// heads writes the records of two full heads and a witness.
func (r *rack) heads() {
	r.Helper()
	r.write(func(tx *store.Tx) (err error) {
		for name, role := range map[string]string{"head0": "", "head1": trivet.RoleVoter, "head2": trivet.RoleWitness} {
			err = errors.Join(err, r.Heads.In(tx).Put(&trivet.Head{Meta: trivet.Meta{Name: name},
				Spec: trivet.HeadSpec{Role: role}, Status: trivet.HeadStatus{State: trivet.HeadMember}}))
		}
		return err
	})
}

// becomes writes where a head is in its life.
func (r *rack) becomes(name string, state trivet.HeadState) {
	r.Helper()
	r.must(r.Head(r.Context(), name, func(h *trivet.Head) bool { h.Status.State = state; return true }))
}

func (r *rack) replacing(old string) auth.Secret {
	r.Helper()
	token, err := r.IssueJoin(r.Context(), trivet.RoleVoter, old, time.Now().Add(time.Hour))
	r.must(err)
	return token
}

func joining(token auth.Secret, id string) fleet.Joining {
	return fleet.Joining{Token: token.Reveal(), Role: trivet.RoleVoter, ID: id, Peer: "https://127.0.0.1:1"}
}

// isLast wants a refusal that says what to do.
func (r *rack) isLast(what string, err error) {
	r.Helper()
	if !errors.Is(err, trivet.ErrConflict) || !strings.Contains(err.Error(), "no other full head is a member") ||
		!strings.Contains(err.Error(), "trivet head token") {
		r.Errorf("%s: %v", what, err)
	}
}

// stay wants heads that nobody has begun to remove.
func (r *rack) stay(names ...string) {
	r.Helper()
	for _, name := range names {
		if h, err := r.Heads.Get(name); err != nil || !h.Serves() {
			r.Errorf("%s does not stay: %+v, %v", name, h, err)
		}
	}
}

// What was right when a token to replace a head was issued is looked at again when it is used, which spends it only then.
func TestLateReplacement(t *testing.T) {
	r := newRack(t)
	r.heads()
	token := r.replacing("head1")
	r.must(r.RemoveHead(t.Context(), "head0"))
	_, err := r.MayJoin(t.Context(), joining(token, "a"))
	r.isLast("asked for", err)
	_, err = r.Join(t.Context(), joining(token, "a"))
	r.isLast("joined", err)
	r.stay("head1")
	_, err = r.IssueJoin(t.Context(), trivet.RoleVoter, "head1", time.Now().Add(time.Hour))
	r.isLast("another token", err)

	r.write(func(tx *store.Tx) error {
		return r.Heads.In(tx).Put(&trivet.Head{Meta: trivet.Meta{Name: "head3"}, Status: trivet.HeadStatus{State: trivet.HeadJoining}})
	})
	r.isLast("beside one that learns", r.RemoveHead(t.Context(), "head1"))
	r.becomes("head3", trivet.HeadMember)
	h, err := r.Join(t.Context(), joining(token, "a"))
	if err != nil || h.Status.Replaces != "head1" {
		t.Fatalf("beside one that counts: %+v, %v", h, err)
	}
}

// A head that is to be replaced stays until its successor's turn has come.
func TestReplacedHeadsStayAtFirst(t *testing.T) {
	r := newRack(t)
	r.heads()
	a, b := r.replacing("head0"), r.replacing("head1")
	for _, token := range []auth.Secret{a, b} {
		if _, err := r.Join(t.Context(), joining(token, token.Reveal()[:20])); err != nil {
			t.Fatal(err)
		}
	}
	r.stay("head0", "head1")
	r.must(r.RemoveHead(t.Context(), "head0")) // the first one's turn
	r.isLast("the second's", r.RemoveHead(t.Context(), "head1"))
	r.must(r.RemoveHead(t.Context(), "head0")) // said twice
	r.stay("head1")
}

// Of two removals at once that rest on each other's head, one is refused.
func TestRemovalsAtOnce(t *testing.T) {
	r := newRack(t)
	for range 20 {
		r.heads()
		names := []string{"head0", "head1"}
		errs := make([]error, len(names))
		var removals sync.WaitGroup
		for i, name := range names {
			removals.Go(func() { errs[i] = r.RemoveHead(t.Context(), name) })
		}
		removals.Wait()
		for i, err := range errs {
			if err != nil {
				r.isLast("remove "+names[i], err)
				r.stay(names[i])
			}
		}
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("want one refused: %v", errs)
		}
	}
}
