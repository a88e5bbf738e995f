package membership

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/peer"
	"github.com/trivet-project/trivet/internal/store"
)

func headIn(name, role string, id uint64, state trivet.HeadState) *trivet.Head {
	return &trivet.Head{Meta: trivet.Meta{Name: name}, Spec: trivet.HeadSpec{Role: role},
		Status: trivet.HeadStatus{State: state, Member: cluster.FormatID(id), Release: trivet.CurrentRelease}}
}

// A standby becomes a member when it has been healthy for a while, and never a voter.
func TestStandbyDoesNotVote(t *testing.T) {
	r := newRecords(t, headIn("head0", "", 1, trivet.HeadMember), headIn("head1", trivet.RoleStandby, 7,
		trivet.HeadJoining))
	members := &learnerMembers{id: 7}
	healthy := peer.Status{LastHeard: time.Now(), HealthySince: time.Now()}
	healthy.Leader = "1"
	c := Reconciler{r, members, func() map[string]peer.Status { return map[string]peer.Status{"head1": healthy} }}
	for _, want := range []trivet.HeadState{trivet.HeadJoining, trivet.HeadMember, trivet.HeadMember} {
		if _, err := c.Reconcile(t.Context(), "head1"); err != nil {
			t.Fatal(err)
		}
		if h, err := r.Heads.Get("head1"); err != nil || h.Status.State != want || members.promoted > 0 {
			t.Errorf("%+v, %v, promoted %d; want %s", h, err, members.promoted, want)
		}
		healthy.HealthySince = time.Now().Add(-StableTime)
	}
	if _, err := r.IssueToken(t.Context(), trivet.RoleVoter, "head0", time.Now().Add(time.Hour)); !errors.Is(err,
		trivet.ErrConflict) || !strings.Contains(err.Error(), "no other full head that votes") {
		t.Errorf("the only voter is replaced: %v", err)
	}
}

// A standby is a learner for good, so others join beside it; a second standby does not.
func TestJoinBesideAStandby(t *testing.T) {
	r := newRecords(t, headIn("head0", "", 1, trivet.HeadMember), headIn("head1", trivet.RoleStandby, 2,
		trivet.HeadMember), headIn("head2", trivet.RoleVoter, 3, trivet.HeadJoining))
	learner := func(id uint64) cluster.Peer { return cluster.Peer{ID: id, URL: cluster.FormatID(id), Learner: true} }
	for name, c := range map[string]struct {
		learners []cluster.Peer
		joins    *trivet.Head
		refused  string
	}{
		"a voter":   {[]cluster.Peer{learner(2)}, headIn("head3", trivet.RoleVoter, 0, ""), ""},
		"a witness": {[]cluster.Peer{learner(2)}, headIn("head3", trivet.RoleWitness, 0, ""), ""},
		"a second standby": {[]cluster.Peer{learner(2)}, headIn("head3", trivet.RoleStandby, 0, ""),
			"is the standby"},
		"while another one joins": {[]cluster.Peer{learner(2), learner(3)}, headIn("head3", "", 0, ""),
			"head2 is joining"},
		"beside an unknown one":      {[]cluster.Peer{learner(9)}, headIn("head3", "", 0, ""), "is joining"},
		"in the place of that":       {[]cluster.Peer{learner(2)}, replacing("head1"), ""},
		"in the place of another":    {[]cluster.Peer{learner(2)}, replacing("head0"), "is the standby"},
		"of which no member is left": {nil, headIn("head3", trivet.RoleStandby, 0, ""), ""},
	} {
		s := &Server{ServerConfig: ServerConfig{Records: r, Members: peersOnly{peers: c.learners}}}
		err := s.checkOneLearner(c.joins)
		if c.refused == "" && err != nil || c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)) {
			t.Errorf("%s: %v, want %q", name, err, c.refused)
		}
	}
}

func replacing(name string) *trivet.Head {
	h := headIn("head3", trivet.RoleStandby, 0, "")
	h.Status.Replaces = name
	return h
}

type peersOnly struct {
	Members
	peers []cluster.Peer
}

func (m peersOnly) Peers() []cluster.Peer { return m.peers }

// A token for a standby is issued only where no head would let it vote, and there is no other one.
func TestTokenOfAStandby(t *testing.T) {
	r := newRecords(t, headIn("head0", "", 1, trivet.HeadMember))
	issue := func(replace string) error {
		_, err := r.IssueToken(t.Context(), trivet.RoleStandby, replace, time.Now().Add(time.Hour))
		return err
	}
	if err := issue(""); err == nil || !strings.Contains(err.Error(), "needs release 0.3.1") {
		t.Errorf("in an older cluster: %v", err)
	}
	if err := r.RaiseClusterVersion(t.Context()); err != nil {
		t.Fatal(err)
	}
	first, err := r.IssueToken(t.Context(), trivet.RoleStandby, "", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Store.Update(t.Context(), func(tx *store.Tx) error {
		return r.Heads.In(tx).Create(headIn("head1", trivet.RoleStandby, 2, trivet.HeadMember))
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := issue(""); err == nil || !strings.Contains(err.Error(), "head1 is the standby") {
		t.Errorf("a second one: %v", err)
	}
	if err := issue("head1"); err != nil {
		t.Errorf("in its place: %v", err)
	}
	req := &JoinRequest{Token: first.Reveal(), Role: trivet.RoleStandby, ID: "0123456789abcdef",
		Peer: "https://10.0.0.9:7480"}
	if _, err := r.Join(t.Context(), req); err == nil || !strings.Contains(err.Error(), "head1 is the standby") {
		t.Errorf("by a token of before: %v", err)
	}
	if _, err := r.Heads.Get("head2"); !errors.Is(err, trivet.ErrNotFound) {
		t.Errorf("it has a record: %v", err)
	}
}

func TestSetHead(t *testing.T) {
	r := newRecords(t, headIn("head0", "", 1, trivet.HeadMember), headIn("head1", trivet.RoleStandby, 2,
		trivet.HeadMember))
	if err := r.RaiseClusterVersion(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := r.Update(t.Context(), "head0", func(h *trivet.Head) bool {
		h.Status.Peer = "https://10.0.0.100:7480"
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	b := &trivet.BMC{Protocol: "ipmi", Address: "10.0.9.5", Secret: "heads"}
	takeover := &trivet.Takeover{After: trivet.MinTakeover, Reach: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}
	set := func(name string, s trivet.HeadSettings, check error) (*trivet.Head, error) {
		if rec, err := r.Heads.Get(name); err == nil && s.Revision == 0 {
			s.Revision = rec.Revision
		}
		return r.Set(t.Context(), name, s, func(*store.Tx, *trivet.BMC) error { return check })
	}
	if h, err := set("head0", trivet.HeadSettings{BMC: b}, nil); err != nil || *h.Spec.BMC != *b {
		t.Errorf("%+v, %v", h, err)
	}
	h, err := set("head1", trivet.HeadSettings{Takeover: takeover}, nil)
	if err != nil || !slices.Equal(h.Spec.Takeover.Reach, takeover.Reach) {
		t.Fatalf("%+v, %v", h, err)
	}
	refused := errors.New("not among the addresses")
	for what, c := range map[string]struct {
		name  string
		s     trivet.HeadSettings
		check error
		text  string
	}{
		"a record that has changed": {"head1", trivet.HeadSettings{Revision: h.Revision - 1}, nil, "changed meanwhile"},
		"the BMC of another":        {"head1", trivet.HeadSettings{BMC: b}, nil, "that of head0"},
		"the same, written otherwise": {"head1", trivet.HeadSettings{BMC: &trivet.BMC{Protocol: "redfish",
			Address: "https://10.0.9.5:443", Secret: "s"}}, nil, "that of head0"},
		"a password": {"head1", trivet.HeadSettings{BMC: &trivet.BMC{Protocol: "redfish", Address: "https://u:p@10.0.9.6",
			Secret: "s"}}, nil, "has a user or password"},
		"a second takeover": {"head0", trivet.HeadSettings{Takeover: takeover}, nil, "head1 takes over already"},
		"an address of a head": {"head1", trivet.HeadSettings{Takeover: &trivet.Takeover{After: trivet.MinTakeover,
			Reach: []netip.Addr{netip.MustParseAddr("10.0.0.100")}}}, nil, "an address of head0"},
		"a BMC that is refused": {"head0", trivet.HeadSettings{BMC: &trivet.BMC{Protocol: "ipmi",
			Address: "10.0.9.7", Secret: "s"}}, refused, refused.Error()},
		"no protocol": {"head0", trivet.HeadSettings{BMC: &trivet.BMC{Address: "a", Secret: "s"}}, nil, "protocol"},
		"no address to reach": {"head1", trivet.HeadSettings{Takeover: &trivet.Takeover{After: trivet.MinTakeover}}, nil,
			"reach"},
		"too soon":        {"head1", trivet.HeadSettings{Takeover: &trivet.Takeover{Reach: takeover.Reach}}, nil, "30s"},
		"an unknown head": {"head9", trivet.HeadSettings{}, nil, "not found"},
	} {
		if _, err := set(c.name, c.s, c.check); err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want %q", what, err, c.text)
		}
	}
	if err := r.Remove(context.Background(), "head1"); err != nil {
		t.Fatal(err)
	}
	if _, err := set("head1", trivet.HeadSettings{}, nil); err == nil || !strings.Contains(err.Error(), "is removed") {
		t.Errorf("a head that is removed: %v", err)
	}
}
