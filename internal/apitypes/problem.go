package apitypes

import (
	"errors"
	"net/http"
	"strings"

	"github.com/trivet-project/trivet"
)

// statuses are the HTTP statuses of the codes of [trivet.Problem].
var statuses = map[string]int{
	"clock_skew":        http.StatusUnauthorized,
	"unauthenticated":   http.StatusUnauthorized,
	"forbidden":         http.StatusForbidden,
	"fenced":            http.StatusConflict,
	"conflict":          http.StatusConflict,
	"exists":            http.StatusConflict,
	"compacted":         http.StatusGone,
	"too_large":         http.StatusRequestEntityTooLarge,
	"invalid":           http.StatusUnprocessableEntity,
	"not_found":         http.StatusNotFound,
	"unknown":           http.StatusGatewayTimeout,
	"unavailable":       http.StatusServiceUnavailable,
	trivet.CodeInternal: http.StatusInternalServerError,
}

// NewProblem returns err as the API sends it, with the HTTP status. Of an error that wraps none of the sentinels, the
// client learns only that it occurred.
func NewProblem(err error) (status int, p *trivet.Problem) {
	var received *trivet.Problem
	if errors.As(err, &received) {
		return statusOf(received.Code), received
	}
	p = &trivet.Problem{Code: trivet.CodeOf(err), Message: "internal error"}
	if p.Code == trivet.CodeInternal {
		return statusOf(p.Code), p
	}
	p.Message = Brief(err.Error())
	var detailed *trivet.Error
	if errors.As(err, &detailed) && detailed.Hint != "" {
		p.Hint = detailed.Hint
		p.Message = strings.Replace(p.Message, " ("+p.Hint+")", "", 1)
	}
	if p.Code == "invalid" || p.Code == "conflict" {
		p.Fields = fields(err)
	}
	return statusOf(p.Code), p
}

func statusOf(code string) int {
	if status, ok := statuses[code]; ok {
		return status
	}
	return http.StatusInternalServerError
}

// maxFields bounds the wrong fields that a response lists, and maxBrief any text in it, in bytes: it often quotes
// input.
const (
	maxFields = 32
	maxBrief  = 2048
)

// Brief returns text without its middle where it is long, as it may quote input.
func Brief(text string) string {
	if len(text) <= maxBrief {
		return text
	}
	const half = maxBrief / 2
	return strings.ToValidUTF8(text[:half]+" ... "+text[len(text)-half:], "")
}

// fields returns the first FieldErrors in a tree of errors.
func fields(err error) []trivet.FieldError {
	var list []trivet.FieldError
	for _, fe := range FieldErrors(err) {
		if len(list) == maxFields {
			break
		}
		list = append(list, trivet.FieldError{Field: Brief(fe.Field), Problem: Brief(fe.Problem)})
	}
	return list
}

// FieldErrors returns every FieldError that is joined or wrapped in err, in order.
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
