package apitypes

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
)

// Problem is an error on the wire. At the client it is the error again: errors.Is finds the sentinel that it was at the
// head, errors.As its fields.
type Problem struct {
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Hint    string  `json:"hint,omitempty"` // what the person who reads it can do next
	Fields  []Field `json:"fields,omitempty"`
	// RequestID finds the request in the head's log.
	RequestID string `json:"requestID,omitempty"`
}

// Field is one wrong field.
type Field struct {
	Field   string `json:"field"`
	Problem string `json:"problem"`
}

// codes are the kinds of failure, the more special before the more general.
var codes = []struct {
	code   string
	status int
	err    error
}{
	{"skew", http.StatusUnauthorized, auth.ErrSkew},
	{"unauthenticated", http.StatusUnauthorized, trivet.ErrUnauthenticated},
	{"forbidden", http.StatusForbidden, trivet.ErrForbidden},
	{"fenced", http.StatusConflict, trivet.ErrFenced},
	{"conflict", http.StatusConflict, trivet.ErrConflict},
	{"exists", http.StatusConflict, trivet.ErrExists},
	{"compacted", http.StatusGone, trivet.ErrCompacted},
	{"too_large", http.StatusRequestEntityTooLarge, trivet.ErrTooLarge},
	{"invalid", http.StatusUnprocessableEntity, trivet.ErrInvalid},
	{"not_found", http.StatusNotFound, trivet.ErrNotFound},
	{"unknown", http.StatusGatewayTimeout, trivet.ErrUnknown},
	{"unavailable", http.StatusServiceUnavailable, trivet.ErrUnavailable},
}

// Internal is the code of a failure that is the head's own fault.
const Internal = "internal"

// NewProblem tells what err is. One that is none of the sentinels is not told to the client beyond that it happened.
func NewProblem(err error) (status int, p *Problem) {
	var carried *Problem
	if errors.As(err, &carried) {
		return statusOf(carried.Code), carried
	}
	p = &Problem{Code: Internal, Message: "internal error"}
	for _, c := range codes {
		if errors.Is(err, c.err) {
			p.Code, p.Message = c.code, Brief(err.Error())
			break
		}
	}
	status = statusOf(p.Code)
	if p.Code == Internal {
		return status, p
	}
	var said *trivet.Error
	if errors.As(err, &said) && said.Hint != "" {
		p.Hint = said.Hint
		p.Message = strings.Replace(p.Message, " ("+said.Hint+")", "", 1)
	}
	if p.Code == "invalid" {
		p.Fields = fields(err)
	}
	return status, p
}

func statusOf(code string) int {
	for _, c := range codes {
		if c.code == code {
			return c.status
		}
	}
	return http.StatusInternalServerError
}

// maxFields bounds how many wrong fields one answer names, and maxBrief any text in it, in bytes: it often quotes what came.
const (
	maxFields = 32
	maxBrief  = 2048
)

// Brief leaves out the middle of a long text that was made of what somebody sent.
func Brief(text string) string {
	if len(text) <= maxBrief {
		return text
	}
	const half = maxBrief / 2
	return strings.ToValidUTF8(text[:half]+" ... "+text[len(text)-half:], "")
}

// fields gathers every FieldError in a tree of errors, in its order.
func fields(err error) []Field {
	var list []Field
	for _, fe := range FieldErrors(err) {
		if len(list) == maxFields {
			break
		}
		list = append(list, Field{Brief(fe.Field), Brief(fe.Problem)})
	}
	return list
}

// FieldErrors gives every FieldError that is joined or wrapped in err, in order.
func FieldErrors(err error) []*trivet.FieldError {
	switch e := err.(type) {
	case nil:
		return nil
	case *trivet.FieldError:
		return []*trivet.FieldError{e}
	case interface{ Unwrap() []error }:
		var all []*trivet.FieldError
		for _, inner := range e.Unwrap() {
			all = append(all, FieldErrors(inner)...)
		}
		return all
	case interface{ Unwrap() error }:
		return FieldErrors(e.Unwrap())
	}
	return nil
}

// Error gives the message as the head wrote it.
func (p *Problem) Error() string {
	if p.Hint != "" {
		return p.Message + " (" + p.Hint + ")"
	}
	return p.Message
}

// Unwrap gives the sentinel and the fields.
func (p *Problem) Unwrap() []error {
	var errs []error
	if i := slices.IndexFunc(codes, func(c struct {
		code   string
		status int
		err    error
	}) bool {
		return c.code == p.Code
	}); i >= 0 {
		errs = append(errs, codes[i].err)
	}
	for _, f := range p.Fields {
		fe := trivet.FieldError(f)
		errs = append(errs, &fe)
	}
	return errs
}

// Foreign makes a Problem of an answer that no head wrote, such as a balancer's.
func Foreign(status int, text string) *Problem {
	p := &Problem{Code: Internal, Message: "answer " + http.StatusText(status) + ": " + firstLine(text)}
	switch status {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests,
		http.StatusUnauthorized, http.StatusForbidden: // it says nothing about who asks: no head was asked
		p.Code = "unavailable"
	case http.StatusBadGateway, http.StatusGatewayTimeout: // the head may have died with the answer on its way
		p.Code = "unknown"
	case http.StatusNotFound:
		p.Code = "not_found"
	case http.StatusRequestEntityTooLarge, http.StatusRequestURITooLong, http.StatusRequestHeaderFieldsTooLarge:
		p.Code = "too_large"
	case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusUnsupportedMediaType:
		p.Code = "invalid"
	}
	return p
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line[:min(len(line), 200)]
}
