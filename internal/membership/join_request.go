package membership

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/cluster"
)

// joinPath is the endpoint of joins.
const joinPath = "join"

// JoinRequest is the request of a head that wants to join.
type JoinRequest struct {
	Token    string    `json:"token"`
	Role     string    `json:"role"` // the role of the token
	ID       string    `json:"id"`   // random; the same in each retry, which gets the same response
	Peer     string    `json:"peer"` // https://host:port where the other heads will reach it
	CSR      []byte    `json:"csr"`
	Version  string    `json:"version"`
	Protocol int       `json:"protocol"`
	Time     time.Time `json:"time"` // by its clock

	from     net.Addr // the address that it is sent from; nil: the kernel chooses
	replaces string   // the head that its token replaces
	// machine is what its token says of the machine that it was installed on; nil: it is a token of trivet head token.
	machine *auth.BootToken
}

// JoinResponse is all that a new head needs to start its member. Only voters get the keys.
type JoinResponse struct {
	Name    string         `json:"name"`
	Role    string         `json:"role"`
	Cluster string         `json:"cluster"`
	Member  string         `json:"member"`
	Peers   []cluster.Peer `json:"peers"`
	CA      []byte         `json:"ca"`
	Cert    []byte         `json:"cert"`
	Keys    auth.Bundle    `json:"keys,omitempty"`
	// Incarnation is that of the cluster.
	Incarnation string `json:"incarnation,omitempty"`
}

func (r *JoinRequest) validate() error {
	if len(r.ID) < 16 || len(r.ID) > 64 {
		return &trivet.FieldError{Field: "id", Problem: "must have 16 to 64 characters"}
	}
	if err := validatePeer(r.Peer); err != nil {
		return err
	}
	if r.Role == trivet.RoleWitness {
		return auth.ValidateWitnessHost(hostOf(r.Peer))
	}
	return nil
}

// maxPeerURL bounds the URL of a head, in bytes.
const maxPeerURL = 300

func validatePeer(peer string) error {
	u, err := url.Parse(peer)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.Port() == "" || u.User != nil ||
		strings.Trim(u.Path, "/") != "" || len(peer) > maxPeerURL {
		return &trivet.FieldError{Field: "peer", Problem: fmt.Sprintf("%.300q is not https://host:port", peer)}
	}
	return nil
}

func hostOf(peer string) string {
	u, err := url.Parse(peer)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// hostPort returns the host and port of a URL in one form, for a comparison, however they are written.
func hostPort(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return text
	}
	host := strings.ToLower(strings.TrimRight(u.Hostname(), "."))
	if addr, err := netip.ParseAddr(host); err == nil {
		host = addr.Unmap().String()
	}
	return host + " " + u.Port()
}
