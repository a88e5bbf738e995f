package trivet

import "errors"

// Problem is an error as the API sends it. For a client it is the error again: errors.Is finds the sentinel that it
// wraps at the head, errors.As its fields.
type Problem struct {
	Code    string       `json:"code"`           // the kind of error, for programs
	Message string       `json:"message"`        // what is wrong, for people
	Hint    string       `json:"hint,omitempty"` // what to do next
	Fields  []FieldError `json:"fields,omitempty"`
	// RequestID identifies the request in the head's log.
	RequestID string `json:"requestID,omitempty"`
}

// CodeInternal is the code of an error that is none of the sentinels: a fault of the head.
const CodeInternal = "internal"

// codes are the codes of the sentinels, the special ones before the general ones that they wrap.
var codes = []struct {
	code string
	err  error
}{
	{"clock_skew", ErrClockSkew},
	{"unauthenticated", ErrUnauthenticated},
	{"forbidden", ErrForbidden},
	{"fenced", ErrFenced},
	{"conflict", ErrConflict},
	{"exists", ErrExists},
	{"compacted", ErrCompacted},
	{"too_large", ErrTooLarge},
	{"invalid", ErrInvalid},
	{"not_found", ErrNotFound},
	{"unknown", ErrUnknown},
	{"unavailable", ErrUnavailable},
}

// CodeOf returns the code of the sentinel that err wraps, or CodeInternal.
func CodeOf(err error) string {
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	return CodeInternal
}

// Error returns the message as the head wrote it.
func (p *Problem) Error() string {
	if p.Hint != "" {
		return p.Message + " (" + p.Hint + ")"
	}
	return p.Message
}

// Unwrap returns the sentinel and the fields.
func (p *Problem) Unwrap() []error {
	var errs []error
	for _, c := range codes {
		if c.code == p.Code {
			errs = append(errs, c.err)
		}
	}
	for i := range p.Fields {
		errs = append(errs, &p.Fields[i])
	}
	return errs
}
