package heads

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/cluster"
)

// Greeting is what heads tell each other of themselves.
type Greeting struct {
	Head     string         `json:"head"`
	Member   string         `json:"member,omitempty"` // ID of its member of the store, 16 hex digits; empty: not known yet
	Version  string         `json:"version,omitempty"`
	Protocol int            `json:"protocol"`
	Time     time.Time      `json:"time"`               // by its clock
	Started  time.Time      `json:"started,omitzero"`   // its process
	Revision int64          `json:"revision,omitempty"` // of the store, that its own copy has reached
	Leader   string         `json:"leader,omitempty"`   // ID of the member that leads, as it knows; empty: none
	Peers    []cluster.Peer `json:"peers,omitempty"`    // all members, as it knows them
}

// MemberID writes a member's ID as records have it.
func MemberID(id uint64) string { return fmt.Sprintf("%016x", id) }

// greet tells a member who this head is. One that is out gets ErrForbidden, which is for good.
func (d *Door) greet(_ *http.Request, p auth.Peer, body []byte) (any, error) {
	var theirs Greeting
	if err := json.Unmarshal(body, &theirs); err != nil {
		return nil, fmt.Errorf("greet: %w: %w", trivet.ErrInvalid, err)
	}
	if d.out(p.Name, theirs.Member) {
		return nil, removed(p.Name)
	}
	return d.Self(), nil
}

// out says whether a head is known not to be a member: its record says so; or it says which member it is, and that one is gone
// from the store's members, though this head is in touch with them. (A copy that is behind has not got that record yet.)
func (d *Door) out(name, member string) bool {
	if d.Fleet == nil {
		return false
	}
	h, err := d.Fleet.Heads.GetShared(name)
	if err != nil || h.Status.State == trivet.HeadRemoved {
		return err == nil
	}
	return member != "" && h.Status.Member == member && d.Members.HasLeader() &&
		!slices.ContainsFunc(d.Members.Peers(), func(p cluster.Peer) bool { return MemberID(p.ID) == member })
}

// Caller calls other heads as a member.
type Caller struct {
	client *http.Client
	self   func() Greeting
}

// greetTime bounds one greeting.
const greetTime = 2 * time.Second

// NewCaller makes one. own gives the member's certificate and root the cluster's, at each connection.
func NewCaller(own auth.CertFunc, root func() *auth.Root, self func() Greeting) *Caller {
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		cfg := root().PeerTLS(own)
		cfg.NextProtos = []string{"h2"}
		return (&tls.Dialer{Config: cfg}).DialContext(ctx, network, addr)
	}
	return &Caller{&http.Client{Transport: &http.Transport{DialTLSContext: dial, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true}}, self}
}

// Greet greets the head at a URL.
func (c *Caller) Greet(ctx context.Context, url string) (theirs Greeting, err error) {
	ctx, cancel := context.WithTimeout(ctx, greetTime)
	defer cancel()
	err = Call(ctx, c.client, url+Prefix+"greet", c.self(), &theirs)
	return theirs, err
}

// Renew gets a fresh certificate for a witness's new key from the head at a URL.
func (c *Caller) Renew(ctx context.Context, url string, ask Renewal) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*greetTime)
	defer cancel()
	var got Certificate
	err := Call(ctx, c.client, url+Prefix+"renew", ask, &got)
	return got.Cert, err
}

// Again asks the head at a URL to make a new member of this one, whose first start was cut off.
func (c *Caller) Again(ctx context.Context, url string) (fresh Fresh, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*greetTime)
	defer cancel()
	err = Call(ctx, c.client, url+Prefix+"again", struct{}{}, &fresh)
	return fresh, err
}

// Close ends what is idle.
func (c *Caller) Close() { c.client.CloseIdleConnections() }
