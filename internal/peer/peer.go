// Package peer carries requests between the heads of a cluster and monitors the other heads. Requests and responses
// are JSON over the API's port; a head proves its identity by the certificate of its member. Other packages register
// their endpoints on the [Server] and call those of other heads by the [Client].
package peer

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/trivet-project/trivet"
)

// Prefix is the path below which all endpoints are.
const Prefix = "/peer/v1/"

// Protocol is the version of the protocol between heads. It is raised when an older head could no longer be a member
// of the same cluster.
const Protocol = 2

// Info is what a head reports of itself.
type Info struct {
	Head     string    `json:"head"`
	Member   string    `json:"member,omitempty"` // ID of its member of the store, 16 hex digits; empty: not known yet
	Version  string    `json:"version,omitempty"`
	Protocol int       `json:"protocol"`
	Time     time.Time `json:"time"`               // by its clock
	Started  time.Time `json:"started,omitzero"`   // its process
	Revision int64     `json:"revision,omitempty"` // revision of the store that its own copy has reached
	Index    uint64    `json:"index,omitempty"`    // of an entry of the log that its member has written
	Leader   string    `json:"leader,omitempty"`   // ID of the member that it knows as the leader; empty: none
	Refused  int       `json:"refused,omitempty"`  // values in its copy of the store that do not authenticate
	CAs      []string  `json:"cas,omitempty"`      // pins of the CAs that it uses; the first has signed its certificate
	// Program is what a witness, which writes no records, reports of its program; nil: there was no upgrade.
	Program *trivet.HeadProgram `json:"program,omitempty"`
}

// Retryable reports whether a request that failed with this error may succeed later.
func Retryable(err error) bool {
	return errors.Is(err, trivet.ErrUnavailable) || errors.Is(err, trivet.ErrConflict) ||
		errors.Is(err, trivet.ErrUnknown)
}

type connTimeKey struct{}

// WithConnTime records the time at which a connection was accepted, for http.Server.ConnContext: a certificate must
// be valid at that time. A connection may outlive it.
func WithConnTime(ctx context.Context) context.Context {
	return context.WithValue(ctx, connTimeKey{}, time.Now())
}

// ConnTime returns the time at which the request's connection was accepted.
func ConnTime(r *http.Request) time.Time {
	if t, ok := r.Context().Value(connTimeKey{}).(time.Time); ok {
		return t
	}
	return time.Now()
}
