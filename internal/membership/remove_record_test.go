package membership

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/store"
)

// records is a test's records.
type records struct {
	*testing.T
	*Records
}

func (r *records) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *records) write(do func(tx *store.Tx) error) {
	r.Helper()
	_, err := r.Store.Update(r.Context(), do)
	r.must(err)
}

// putHeads writes the records of two full heads and a witness.
func (r *records) putHeads() {
	r.Helper()
	r.write(func(tx *store.Tx) (err error) {
		for name, role := range map[string]string{"head0": "", "head1": trivet.RoleVoter, "head2": trivet.RoleWitness} {
			err = errors.Join(err, r.Heads.In(tx).Put(&trivet.Head{Meta: trivet.Meta{Name: name},
				Spec: trivet.HeadSpec{Role: role}, Status: trivet.HeadStatus{State: trivet.HeadMember}}))
		}
		return err
	})
}

// setState writes the state of a head.
func (r *records) setState(name string, state trivet.HeadState) {
	r.Helper()
	r.must(r.Update(r.Context(), name, func(h *trivet.Head) bool { h.Status.State = state; return true }))
}

func (r *records) replaceToken(old string) auth.Secret {
	r.Helper()
	token, err := r.IssueToken(r.Context(), trivet.RoleVoter, old, time.Now().Add(time.Hour))
	r.must(err)
	return token
}

func joinRequest(token auth.Secret, id string) *JoinRequest {
	return &JoinRequest{Token: token.Reveal(), Role: trivet.RoleVoter, ID: id, Peer: "https://127.0.0.1:1"}
}

// isLast checks the error of the removal of the last head.
func (r *records) isLast(what string, err error) {
	r.Helper()
	if !errors.Is(err, trivet.ErrConflict) || !strings.Contains(err.Error(), "no other full head that votes stays") ||
		!strings.Contains(err.Error(), "trivet head token") {
		r.Errorf("%s: %v", what, err)
	}
}

// stay checks that no removal of these heads was requested.
func (r *records) stay(names ...string) {
	r.Helper()
	for _, name := range names {
		if h, err := r.Heads.Get(name); err != nil || !h.Serves() {
			r.Errorf("%s does not stay: %+v, %v", name, h, err)
		}
	}
}

// A token to replace a head is checked again when it is used, and a refused request does not use it.
func TestLateReplacement(t *testing.T) {
	r := &records{t, newRecords(t)}
	r.putHeads()
	token := r.replaceToken("head1")
	r.must(r.Records.Remove(t.Context(), "head0"))
	_, err := r.CheckJoin(t.Context(), joinRequest(token, "a"))
	r.isLast("checked", err)
	_, err = r.Join(t.Context(), joinRequest(token, "a"))
	r.isLast("joined", err)
	r.stay("head1")
	_, err = r.IssueToken(t.Context(), trivet.RoleVoter, "head1", time.Now().Add(time.Hour))
	r.isLast("another token", err)

	r.write(func(tx *store.Tx) error {
		return r.Heads.In(tx).Put(&trivet.Head{Meta: trivet.Meta{Name: "head3"},
			Status: trivet.HeadStatus{State: trivet.HeadJoining}})
	})
	r.isLast("beside a learner", r.Records.Remove(t.Context(), "head1"))
	r.setState("head3", trivet.HeadMember)
	h, err := r.Join(t.Context(), joinRequest(token, "a"))
	if err != nil || h.Status.Replaces != "head1" {
		t.Fatalf("beside a member: %+v, %v", h, err)
	}
}

// A head that is to be replaced stays until its successor's member is added.
func TestReplacedHeadsStayAtFirst(t *testing.T) {
	r := &records{t, newRecords(t)}
	r.putHeads()
	a, b := r.replaceToken("head0"), r.replaceToken("head1")
	for _, token := range []auth.Secret{a, b} {
		if _, err := r.Join(t.Context(), joinRequest(token, token.Reveal()[:20])); err != nil {
			t.Fatal(err)
		}
	}
	r.stay("head0", "head1")
	r.must(r.Records.Remove(t.Context(), "head0"))
	r.isLast("the second", r.Records.Remove(t.Context(), "head1"))
	r.must(r.Records.Remove(t.Context(), "head0")) // repeated
	r.stay("head1")
}

// Of two concurrent removals that rely on each other's head, one is refused.
func TestConcurrentRemovals(t *testing.T) {
	r := &records{t, newRecords(t)}
	for range 20 {
		r.putHeads()
		names := []string{"head0", "head1"}
		errs := make([]error, len(names))
		var removals sync.WaitGroup
		for i, name := range names {
			removals.Go(func() { errs[i] = r.Records.Remove(t.Context(), name) })
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

// A head that was removed has no credential any more, and gets no new one; those of others stay.
func TestRemovalRevokesTheCredential(t *testing.T) {
	t.Parallel()
	r := &records{t, newRecords(t)}
	r.putHeads()
	r.write(func(tx *store.Tx) (err error) {
		for name, labels := range map[string]map[string]string{
			"one": {trivet.HeadLabel: "head0"}, "two": {trivet.HeadLabel: "head1"}, "three": nil,
		} {
			_, _, hash := auth.NewToken()
			err = errors.Join(err, r.Tokens.In(tx).Put(&trivet.Token{Meta: trivet.Meta{Name: name, Labels: labels},
				Spec: trivet.TokenSpec{Account: adminAccount, Hash: hash}}))
		}
		return err
	})
	r.must(r.Remove(t.Context(), "head1"))
	r.must(r.setRemoved(t.Context(), "head1"))
	if got := r.Tokens.Names(); !slices.Equal(got, []string{"one", "three"}) {
		t.Errorf("the tokens are %q", got)
	}
	removed := &Registration{Records: r.Records, Local: &Local{data: dataFile{Name: "head1"}}}
	removed.Local.root.Store(&must(auth.Init(filepath.Join(t.TempDir(), "keys"), "c1"))(t).CA.Root)
	if err := removed.createAdmin(t.Context()); !errors.Is(err, trivet.ErrForbidden) || r.Tokens.Len() != 2 {
		t.Errorf("%v; the tokens are %q", err, r.Tokens.Names())
	}
}

// A head whose record was deleted, long after its removal, is still known as removed; one that joins, and whose record
// a copy does not have yet, is not.
func TestRemovedHeadWithoutRecord(t *testing.T) {
	t.Parallel()
	r := &records{t, newRecords(t)}
	r.putHeads()
	r.write(func(tx *store.Tx) error {
		return r.Sites.In(tx).Put(&trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
			Status: trivet.SiteStatus{HeadNames: 3}})
	})
	v := &Verifier{Records: r.Records, Members: noMembers{}}
	check := func(head string, removed bool) {
		t.Helper()
		if r.Removed(head) != removed || errors.Is(v.VerifyNotRemoved(head, ""), trivet.ErrForbidden) != removed ||
			errors.Is(v.VerifyListed(head, ""), trivet.ErrForbidden) != removed {
			t.Errorf("%s: removed is %v; %v; %v", head, r.Removed(head), v.VerifyNotRemoved(head, ""),
				v.VerifyListed(head, ""))
		}
	}
	check("head1", false)
	r.must(r.setRemoved(t.Context(), "head1"))
	check("head1", true)
	if h, err := r.Heads.Get("head1"); err != nil || time.Since(h.Status.Removed) > time.Hour {
		t.Errorf("%+v, %v", h, err)
	}
	r.write(func(tx *store.Tx) error { return r.Heads.In(tx).Delete("head1") })
	check("head1", true)
	if err := v.VerifyMember("head1"); !errors.Is(err, trivet.ErrForbidden) {
		t.Error(err)
	}
	for _, head := range []string{"head3", "head03", "head-1", "head+1", "other1", ""} {
		check(head, false)
	}
	if err := v.VerifyListed("head3", ""); !errors.Is(err, trivet.ErrUnavailable) {
		t.Error(err)
	}
}

// noMembers is a store whose members are not known.
type noMembers struct{}

func (noMembers) Peers() []cluster.Peer { return nil }
func (noMembers) HasLeader() bool       { return false }
