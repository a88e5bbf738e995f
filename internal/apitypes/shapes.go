package apitypes

import (
	"encoding/json"
	"time"

	"github.com/trivet-project/trivet"
)

// MaxBody bounds a request that writes one record, in bytes.
const MaxBody = 1 << 20

// MergePatch is the media type of RFC 7386, how programs write what they changed.
const MergePatch = "application/merge-patch+json"

// Headers of requests and answers.
const (
	// IdempotencyKey is 32 hex digits that the maker of a record chose. It becomes the record's UID, so that a maker who lost
	// the answer can tell its own record from somebody else's.
	IdempotencyKey = "Idempotency-Key"
	// RequestID names one request in logs and answers.
	RequestID = "X-Request-Id"
	// Revision of an answer is a revision of the store that the answer is not older than. Who sends the greatest that it was
	// told sees, at whichever head, what it has seen or written. An answer with a smaller one than was asked for means that
	// the cluster has another history now, from before a restore. Of a request, [Latest] asks for all that is acknowledged, and
	// is refused as unavailable where the head cannot find out.
	Revision = "Trivet-Revision"
	// Heads of an answer are the API URLs of all heads, with commas between.
	Heads = "Trivet-Heads"
	// Stale is "true" on an answer of a head that cannot ask the others: it may be older than what was acknowledged.
	Stale = "Trivet-Stale"
)

// Latest is a [Revision] of requests: everything that was acknowledged before the request.
const Latest = "latest"

// List is one page of records.
type List struct {
	Items []json.RawMessage `json:"items"`
	// Revision is that of the first page: a watch from there misses nothing that any page did not show.
	Revision int64 `json:"revision"`
	// Continue asks for the next page; empty on the last one.
	Continue string `json:"continue,omitempty"`
}

// Version is what a head says of itself.
type Version struct {
	Version string `json:"version"`
	Go      string `json:"go,omitempty"`
	Cluster string `json:"cluster,omitempty"`
	Head    string `json:"head,omitempty"`
}

// Whoami is who a token belongs to.
type Whoami struct {
	Account string    `json:"account"`
	Role    string    `json:"role"`
	Token   string    `json:"token"` // its public part
	Expires time.Time `json:"expires,omitzero"`
}

// IssueToken asks for a token of an account.
type IssueToken struct {
	Account string    `json:"account"`
	Expires time.Time `json:"expires,omitzero"` // zero: never
}

// IssuedToken is the one time that a token is shown.
type IssuedToken struct {
	Name  string `json:"name"`
	Token string `json:"token"`
}

// Quarantine says why a machine is kept out of placement.
type Quarantine struct {
	Reason string `json:"reason"`
}

// LogPiece is a part of what one try of one action wrote. Logs are sent as one JSON object a line;
// one without an action is the end, so that a broken connection is not taken for it.
type LogPiece struct {
	Action  string `json:"action"`
	Attempt int    `json:"attempt"`
	// Offset is where the text begins in the log, Next where it ends, in bytes of the log.
	Offset int64  `json:"offset"`
	Next   int64  `json:"next"`
	Text   string `json:"text"`
	// Missing, of a piece without text, are the heads that cannot be asked from there on: what they alone have is left out.
	// None: all are asked again. Such a piece is of the action [LogMark], and nothing to who does not know it.
	Missing []string `json:"missing,omitempty"`
}

// LogMark is the action of a piece that is no action's.
const LogMark = "*"

// The events of a watch.
const (
	EventPut    = "put"
	EventDelete = "delete"
	// EventSynced ends the current state that a watch without a revision begins with.
	EventSynced = "synced"
	// EventBookmark says only that nothing else happened until its revision; it also shows that the head is there.
	EventBookmark = "bookmark"
	// EventDrain says that the head is about to stop: go on at another one.
	EventDrain = "drain"
	// EventError ends a feed with a Problem.
	EventError = "error"
)

// Gone is the data of EventDelete.
type Gone struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

// Upload is content that comes in over several connections. It lives at one head.
type Upload struct {
	ID     string `json:"id,omitempty"`
	Offset int64  `json:"offset"`
	// Blob is set where the announced content is there already and nothing needs to be sent.
	// Or it is what a finished upload has become.
	Blob *trivet.BlobRef `json:"blob,omitempty"`
	// Copied is how many bytes of a finished upload a second head holds: all of them when it is acknowledged.
	Copied int64 `json:"copied,omitempty"`
}

// IssueJoin asks for a token that lets one head join the cluster.
type IssueJoin struct {
	Role string          `json:"role,omitempty"` // "voter" or "witness"; with Replace, the old head's
	Life trivet.Duration `json:"life,omitempty"`
	// Replace is a head that is removed when the new one joins.
	Replace string `json:"replace,omitempty"`
}

// IssuedJoin is the one time that such a token is shown.
type IssuedJoin struct {
	Token   string    `json:"token"`
	Expires time.Time `json:"expires"`
}

// JoinText is what an operator carries to a new head: how to know the cluster, and the right to join it once. A witness is
// told that it is one, as it opens fewer ports.
func JoinText(pin, token, role string) string {
	if role == trivet.RoleWitness {
		token += "." + role
	}
	return pin + "." + token
}

// Cluster is the control plane as one head sees it now.
type Cluster struct {
	ID       string     `json:"id"`
	Head     string     `json:"head"`   // who says so
	Quorum   bool       `json:"quorum"` // it is in touch with a leader
	Revision int64      `json:"revision"`
	Heads    []HeadView `json:"heads"`
}

// HeadView is one head in it.
type HeadView struct {
	Name  string `json:"name"`
	Role  string `json:"role"`
	State string `json:"state"` // leader, member, joining, down, removing, removed
	// Seen is how long ago it was last heard; 0 for the head that says so. Where it was never heard, since that one has
	// started, it is left out.
	Seen    *trivet.Duration `json:"seen,omitempty"`
	Version string           `json:"version,omitempty"`
	API     []string         `json:"api,omitempty"`
	Peer    string           `json:"peer,omitempty"`
	Problem string           `json:"problem,omitempty"` // what is wrong, or awaited
}
