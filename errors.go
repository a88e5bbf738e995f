package trivet

import (
	"errors"
	"fmt"
	"strings"
)

// The errors that callers distinguish with errors.Is. The API and its client transfer them, see [Problem].
var (
	// ErrNotFound: the record does not exist.
	ErrNotFound = errors.New("not found")
	// ErrExists: a record of this name exists already.
	ErrExists = errors.New("exists already")
	// ErrInvalid: the input is wrong; a retry will not help.
	ErrInvalid = errors.New("invalid")
	// ErrConflict: the record changed since it was read. Read it again and decide again.
	ErrConflict = errors.New("conflict")
	// ErrFenced: the writer was replaced (older epoch, lost lease) and must stop.
	ErrFenced = errors.New("fenced")
	// ErrUnknown: the outcome is not known. The write may have happened.
	ErrUnknown = errors.New("outcome unknown")
	// ErrUnavailable: nothing was written; the store or head cannot serve now. Retry, here or at another head.
	ErrUnavailable = errors.New("unavailable")
	// ErrCompacted: the change feed no longer holds the requested revision. List again.
	ErrCompacted = errors.New("revision compacted")
	// ErrUnauthenticated: the caller has no valid credentials.
	ErrUnauthenticated = errors.New("unauthenticated")
	// ErrClockSkew is an ErrUnauthenticated: the agent's clock is too far from the head's. The agent reads the time
	// from the response's Date header, keeps the difference, and sends the request again.
	ErrClockSkew = fmt.Errorf("%w: the agent's clock is off", ErrUnauthenticated)
	// ErrForbidden: the caller may not do this.
	ErrForbidden = errors.New("forbidden")
	// ErrTooLarge: the input exceeds a limit.
	ErrTooLarge = errors.New("too large")
)

// Error adds to an error the operation, the record and what to do next.
type Error struct {
	Op   string // "create", "claim", "pull blob"
	Kind Kind   // may be empty
	Name string // may be empty
	Hint string // what to do next; may be empty
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

// FieldError reports a wrong field of a record. It is an ErrInvalid.
type FieldError struct {
	Field   string `json:"field"`   // path in the JSON, "spec.actions[2].timeout"
	Problem string `json:"problem"` // "is missing"
}

func (e *FieldError) Error() string { return e.Field + " " + e.Problem }

// Is reports true for ErrInvalid.
func (e *FieldError) Is(target error) bool { return target == ErrInvalid }
