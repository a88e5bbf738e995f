package heads

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/fleet"
)

// Ask is what a head says that wants to join.
type Ask struct {
	Token    string    `json:"token"`
	Role     string    `json:"role"` // that it takes its token to be for
	ID       string    `json:"id"`   // random, the same when it asks again
	Peer     string    `json:"peer"` // https://host:port where members will reach it
	CSR      []byte    `json:"csr"`
	Version  string    `json:"version"`
	Protocol int       `json:"protocol"`
	Time     time.Time `json:"time"` // by its clock

	replaces string // its token's
}

// Place is what it gets: all that it needs to start its member. The keys are for a voter only.
type Place struct {
	Name    string         `json:"name"`
	Role    string         `json:"role"`
	Cluster string         `json:"cluster"`
	Member  string         `json:"member"`
	Peers   []cluster.Peer `json:"peers"`
	CA      []byte         `json:"ca"`
	Cert    []byte         `json:"cert"`
	Keys    auth.Bundle    `json:"keys,omitempty"`
}

// join gives a place. All that could be wrong is looked at before the token is spent.
func (d *Door) join(r *http.Request, _ auth.Peer, body []byte) (any, error) {
	var ask Ask
	if err := json.Unmarshal(body, &ask); err != nil {
		return nil, fmt.Errorf("join: %w: %w", trivet.ErrInvalid, err)
	}
	j := fleet.Joining{Token: ask.Token, Role: ask.Role, ID: ask.ID, Peer: ask.Peer}
	if err := errors.Join(ask.validate(), validatePeer(ask.Peer)); err != nil {
		return nil, err
	}
	var err error
	if ask.replaces, err = d.mayJoin(r.Context(), j); err != nil {
		return nil, err
	}
	for _, check := range []func(context.Context, *Ask) error{d.speaks, d.inTime, d.free, d.reaches} {
		if err := check(r.Context(), &ask); err != nil {
			return nil, err
		}
	}
	h, err := d.Fleet.Join(r.Context(), j)
	if err != nil {
		return nil, err
	}
	peers, err := d.add(r.Context(), h)
	if err != nil {
		return nil, err
	}
	d.Log.Info("a head joins", "head", h.Name, "role", h.Spec.Role, "peer", ask.Peer, "from", r.RemoteAddr)
	return d.place(h, peers, ask.CSR)
}

// mayJoin looks at the token, and gives the head that is replaced by its bearer.
func (d *Door) mayJoin(ctx context.Context, j fleet.Joining) (replaces string, err error) {
	ctx, cancel := context.WithTimeout(ctx, changeTime)
	defer cancel()
	select {
	case d.asking <- struct{}{}:
		defer func() { <-d.asking }()
		return d.Fleet.MayJoin(ctx, j)
	case <-ctx.Done():
		return "", fmt.Errorf("join: %w: many ask for a place at once: %w", trivet.ErrUnavailable, ctx.Err())
	}
}

func (d *Door) place(h *trivet.Head, peers []cluster.Peer, csr []byte) (*Place, error) {
	who := auth.Peer{Name: h.Name, Role: auth.PeerHead}
	if h.Spec.Role == trivet.RoleWitness {
		who.Role, who.Host = auth.PeerWitness, hostOf(h.Status.Peer)
	}
	cert, err := d.Keys.CA.SignPeer(who, csr, time.Now())
	if err != nil {
		return nil, err
	}
	p := &Place{Name: h.Name, Role: h.Spec.Role, Cluster: d.Root.Cluster(), Member: h.Status.Member, Peers: peers, CA: d.Root.PEM(), Cert: cert}
	if who.Role == auth.PeerHead {
		p.Keys = d.Keys.Bundle()
	}
	return p, nil
}

// changeTime bounds a change of the store's members: of two at once the store drops one, and never answers that.
const changeTime = 5 * time.Second

// add makes room for the head's member, and notes which one it is. Said again, it finds that one.
func (d *Door) add(ctx context.Context, h *trivet.Head) ([]cluster.Peer, error) {
	ctx, cancel := context.WithTimeout(ctx, changeTime)
	defer cancel()
	if h.Status.Member == "" {
		if err := d.turn(h); err != nil {
			return nil, err
		}
		if err := d.replace(ctx, h); err != nil {
			return nil, err
		}
		id, _, err := d.Members.Add(ctx, h.Status.Peer)
		if errors.Is(err, trivet.ErrExists) { // d.free has seen no such head: this one's own, added by another head's door
			err = fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
		}
		if err != nil {
			return nil, err
		}
		if err := d.unused(h, id); err != nil {
			return nil, err
		}
		if err := d.becomes(ctx, h, id); err != nil {
			return nil, err
		}
	}
	peers := d.Members.Peers()
	if !slices.ContainsFunc(peers, func(p cluster.Peer) bool { return MemberID(p.ID) == h.Status.Member }) {
		return nil, fmt.Errorf("join: %w: this head has not heard yet of the new member", trivet.ErrUnavailable)
	}
	return peers, nil
}

// unused refuses the member of another head, which may have its data, and acknowledged what a new one would not have. It has the
// same address, and is about to be removed.
func (d *Door) unused(h *trivet.Head, id uint64) error {
	for rec := range d.Fleet.Heads.AllShared() {
		if rec.Name != h.Name && rec.Status.Member == MemberID(id) {
			return fmt.Errorf("join: %w: the member of %s, which had this address, is still there", trivet.ErrUnavailable, rec.Name)
		}
	}
	return nil
}

// becomes notes a head's member, which was added for it. One that was removed meanwhile must not have any.
func (d *Door) becomes(ctx context.Context, h *trivet.Head, id uint64) error {
	h.Status.Member = MemberID(id)
	out := false
	err := d.Fleet.Head(ctx, h.Name, func(rec *trivet.Head) bool {
		out = rec.Spec.Remove || rec.Status.State == trivet.HeadRemoved
		rec.Status.Member = h.Status.Member
		return !out
	})
	if err != nil || !out {
		return err
	}
	for _, id := range Leftovers(d.Fleet, h, []cluster.Peer{{ID: id}}) {
		if err := d.Members.Remove(ctx, id); err != nil { // the controller does it later
			d.Log.Warn("the member of a head that was removed while it joined is still there", "head", h.Name, "error", err)
		}
	}
	return &trivet.Error{Op: "join", Kind: "Head", Name: h.Name, Hint: HintRejoin, Err: fmt.Errorf("%w: it was removed meanwhile", trivet.ErrForbidden)}
}

// turn says whether another head is joining: one does at a time.
func (d *Door) turn(h *trivet.Head) error {
	for _, p := range d.Members.Peers() {
		if !p.Learner || p.URL == h.Status.Peer {
			continue
		}
		name := p.URL
		for rec := range d.Fleet.Heads.AllShared() {
			if rec.Status.Member == MemberID(p.ID) {
				name = rec.Name
			}
		}
		return &trivet.Error{Op: "join", Err: fmt.Errorf("%w: %s is joining, and one head joins at a time", trivet.ErrConflict, name),
			Hint: fmt.Sprintf("wait until it counts; if it will not come: trivet head remove %s", name)}
	}
	return nil
}

// replace takes the head out that another one joins in place of. One that is down would be in its way. It is the new one's
// turn, and where the old one is the last full head after all, it stays.
func (d *Door) replace(ctx context.Context, h *trivet.Head) error {
	if h.Status.Replaces == "" {
		return nil
	}
	old, err := d.Fleet.Heads.GetShared(h.Status.Replaces)
	switch {
	case errors.Is(err, trivet.ErrNotFound):
		return nil
	case err != nil:
		return err
	case old.Name == d.Self().Head:
		return &trivet.Error{Op: "join", Err: fmt.Errorf("%w: %s is the head that is replaced", trivet.ErrUnavailable, old.Name),
			Hint: "give the URL of another head by --join"}
	}
	if err := d.Fleet.RemoveHead(ctx, old.Name); err != nil || old.Status.Member == "" {
		return err
	}
	id, err := strconv.ParseUint(old.Status.Member, 16, 64)
	if err != nil {
		return fmt.Errorf("head %s: member %q: %w", old.Name, old.Status.Member, trivet.ErrInvalid)
	}
	return d.Members.Remove(ctx, id)
}

// speaks refuses a head of another version, that would not understand this one or be understood.
func (d *Door) speaks(_ context.Context, a *Ask) error {
	if a.Protocol == Protocol {
		return nil
	}
	hint := "upgrade this cluster's heads first, or start the new head with the version that they run"
	if a.Protocol < Protocol {
		hint = "start the new head with the version that this cluster's heads run"
	}
	return &trivet.Error{Op: "join", Hint: hint, Err: fmt.Errorf("%w: the new head runs %.40q, which speaks protocol %d; %s runs %s, which speaks %d",
		trivet.ErrInvalid, a.Version, a.Protocol, d.Self().Head, d.Self().Version, Protocol)}
}

// joinSkew is how far a new head's clock may be off.
const joinSkew = time.Minute

func (d *Door) inTime(_ context.Context, a *Ask) error {
	if off := time.Until(a.Time).Round(time.Second); off.Abs() > joinSkew {
		way := "ahead of"
		if off < 0 {
			way = "behind"
		}
		return &trivet.Error{Op: "join", Err: fmt.Errorf("%w: the new head's clock is %s %s that of %s", trivet.ErrInvalid, off.Abs(), way, d.Self().Head),
			Hint: "set both clocks, best by NTP, and start it again; the token is still good"}
	}
	return nil
}

// free refuses an address that another member has, other than the one that is replaced.
func (d *Door) free(_ context.Context, a *Ask) error {
	for h := range d.Fleet.Heads.AllShared() {
		if h.Status.Peer != a.Peer || h.Status.Join == a.ID || h.Status.State == trivet.HeadRemoved || h.Spec.Remove || h.Name == a.replaces {
			continue
		}
		return &trivet.Error{Op: "join", Err: fmt.Errorf("%w: %s is reached at %s", trivet.ErrExists, h.Name, a.Peer),
			Hint: fmt.Sprintf("if that one is gone for good, use a token of 'trivet head replace %s'; else give the new head an address of its own by --advertise and --api", h.Name)}
	}
	return nil
}

// reachTime bounds the look at whether a new head is reached.
const reachTime = 3 * time.Second

// reaches dials the new head at the address that it gives to the others: the holder of its key must answer there.
func (d *Door) reaches(ctx context.Context, a *Ask) error {
	ctx, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	cfg, err := auth.DialBackTLS(a.CSR)
	if err != nil {
		return err
	}
	u, err := url.Parse(a.Peer)
	if err != nil {
		return fmt.Errorf("%w: %w", trivet.ErrInvalid, err)
	}
	conn, err := (&tls.Dialer{NetDialer: &net.Dialer{}, Config: cfg}).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return &trivet.Error{Op: "join", Err: fmt.Errorf("%w: %s does not reach the new head at %s: %w", trivet.ErrInvalid, d.Self().Head, a.Peer, err),
			Hint: "start it with --advertise ADDRESS, one that the other heads reach, and let TCP through; the token is still good"}
	}
	return conn.Close()
}

func (a *Ask) validate() error {
	if len(a.ID) < 16 || len(a.ID) > 64 {
		return &trivet.FieldError{Field: "id", Problem: "must have 16 to 64 characters"}
	}
	if a.Role == trivet.RoleWitness {
		return auth.ValidateWitnessHost(hostOf(a.Peer))
	}
	return nil
}

func validatePeer(peer string) error {
	u, err := url.Parse(peer)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.Port() == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || len(peer) > 300 {
		return &trivet.FieldError{Field: "peer", Problem: fmt.Sprintf("%.300q is not https://host:port", peer)}
	}
	return nil
}
