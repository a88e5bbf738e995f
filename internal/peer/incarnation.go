package peer

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
)

// A recovery makes another incarnation of a cluster, with the same CA. Each request to another head names the caller's:
// heads of different ones do not work with each other, and the one of an older incarnation stops.

// incarnationHeader is the header with the caller's incarnation.
const incarnationHeader = "Trivet-Incarnation"

// Recoveries returns how often a cluster of an incarnation was recovered: see [trivet.Recovered].
func Recoveries(incarnation string) int {
	text, _, _ := strings.Cut(incarnation, "-")
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// SetIncarnation sets what returns the incarnation of this head's cluster. It is called before the first call.
func (c *Client) SetIncarnation(incarnation func() string) {
	c.http.Transport = NamingIncarnation(c.http.Transport, incarnation)
}

// NamingIncarnation returns a transport whose requests name the incarnation of this head's cluster. Every client that
// calls other heads needs it.
func NamingIncarnation(t http.RoundTripper, incarnation func() string) http.RoundTripper {
	return incarnationTransport{t, incarnation}
}

type incarnationTransport struct {
	http.RoundTripper
	incarnation func() string
}

func (t incarnationTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if incarnation := t.incarnation(); incarnation != "" {
		r = r.Clone(r.Context())
		r.Header.Set(incarnationHeader, incarnation)
	}
	return t.RoundTripper.RoundTrip(r)
}

// CloseIdleConnections is what http.Client.CloseIdleConnections calls.
func (t incarnationTransport) CloseIdleConnections() {
	if c, ok := t.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// checkIncarnation refuses callers of another incarnation. A caller of an older one learns that it is not a member any
// more. One of a later one fences this head, if it is a full head: a witness could not have recovered the cluster.
func (s *Server) checkIncarnation(r *http.Request, from auth.Peer) error {
	if s.Incarnation == nil {
		return nil
	}
	own, theirs := s.Incarnation(), r.Header.Get(incarnationHeader)
	switch a, b := Recoveries(own), Recoveries(theirs); {
	case own == theirs:
		return nil
	case b < a:
		return fmt.Errorf("%w: the cluster was recovered as incarnation %s, without %s", trivet.ErrForbidden, own,
			from.Name)
	case b > a && from.Role == auth.PeerHead:
		s.Fence(theirs)
		return fmt.Errorf("%w: this head is of an older incarnation of the cluster", trivet.ErrUnavailable)
	}
	return fmt.Errorf("%w: %s is of another incarnation of the cluster, %.80q; this one is of %q",
		trivet.ErrUnavailable, from.Name, theirs, own)
}
