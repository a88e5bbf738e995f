package trivet

import (
	"errors"
	"fmt"
	"strings"
)

// The kinds of failure that callers tell apart, with errors.Is. Each survives the wire: API and client map them to HTTP
// statuses and back.
var (
	// ErrNotFound: no such record.
	ErrNotFound = errors.New("not found")
	// ErrExists: a record of this name is there already.
	ErrExists = errors.New("exists already")
	// ErrInvalid: the input is wrong; sending it again will not help.
	ErrInvalid = errors.New("invalid")
	// ErrConflict: the record changed since it was read. Read again and decide afresh.
	ErrConflict = errors.New("conflict")
	// ErrFenced: the writer was replaced (older epoch, lost lease) and must stop.
	ErrFenced = errors.New("fenced")
	// ErrUnknown: the outcome could not be learned. The write may have happened.
	ErrUnknown = errors.New("outcome unknown")
	// ErrUnavailable: nothing was written; the store or head cannot serve now. Try again, or another head.
	ErrUnavailable = errors.New("unavailable")
	// ErrCompacted: the change feed no longer reaches back to the asked revision. List again.
	ErrCompacted = errors.New("revision compacted")
	// ErrUnauthenticated: no valid proof of who asks.
	ErrUnauthenticated = errors.New("unauthenticated")
	// ErrClockSkew is an ErrUnauthenticated: the agent's clock is too far from the head's. The agent reads the time from the
	// response's Date header, keeps the difference, and sends the request again.
	ErrClockSkew = fmt.Errorf("%w: the agent's clock is off", ErrUnauthenticated)
	// ErrForbidden: who asks may not do this.
	ErrForbidden = errors.New("forbidden")
	// ErrTooLarge: the input is over a bound.
	ErrTooLarge = errors.New("too large")
)

// Error carries what was being done to which record, and what the person who reads it can do next.
type Error struct {
	Op   string // "create", "claim", "pull blob"
	Kind Kind   // may be empty
	Name string // may be empty
	Hint string // next step for the operator; may be empty
	Err  error  // the cause; one of the sentinels is in its chain
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Kind != "" {
		b.WriteString(" " + strings.ToLower(string(e.Kind)))
	}
	if e.Name != "" {
		b.WriteString(" " + e.Name)
	}
	b.WriteString(": " + e.Err.Error())
	if e.Hint != "" {
		b.WriteString(" (" + e.Hint + ")")
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// FieldError says which field of a record is wrong. It is an ErrInvalid.
type FieldError struct {
	Field   string `json:"field"`   // path in the JSON, "spec.actions[2].timeout"
	Problem string `json:"problem"` // "is missing"
}

func (e *FieldError) Error() string { return e.Field + " " + e.Problem }

// Is makes every FieldError an ErrInvalid.
func (e *FieldError) Is(target error) bool { return target == ErrInvalid }
