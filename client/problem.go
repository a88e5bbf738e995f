package client

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
)

// ParseProblem returns the error in the body of a response that reports one. A response that no head wrote, such as a
// balancer's, results in a Problem too.
func ParseProblem(status int, body []byte) *trivet.Problem {
	var p trivet.Problem
	if err := json.Unmarshal(body, &p); err != nil || p.Code == "" {
		return foreign(status, string(body))
	}
	return &p
}

// readProblem returns the error of a response and closes its body.
func readProblem(resp *http.Response) error {
	defer resp.Body.Close()
	data, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	p := ParseProblem(resp.StatusCode, data)
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		return &dated{p, date}
	}
	return p
}

// dated is a problem with the head's time.
type dated struct {
	*trivet.Problem
	date time.Time
}

func (d *dated) Unwrap() error { return d.Problem }

// foreign returns a Problem for a response that no head wrote, such as a balancer's.
func foreign(status int, text string) *trivet.Problem {
	message := "response " + http.StatusText(status) + ": " + firstLine(text)
	p := &trivet.Problem{Code: trivet.CodeInternal, Message: message}
	switch status {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests,
		http.StatusUnauthorized, http.StatusForbidden: // not about the caller: no head received the request
		p.Code = trivet.CodeOf(trivet.ErrUnavailable)
	case http.StatusBadGateway, http.StatusGatewayTimeout: // the head may have failed before its response was sent
		p.Code = trivet.CodeOf(trivet.ErrUnknown)
	case http.StatusNotFound:
		p.Code = trivet.CodeOf(trivet.ErrNotFound)
	case http.StatusRequestEntityTooLarge, http.StatusRequestURITooLong, http.StatusRequestHeaderFieldsTooLarge:
		p.Code = trivet.CodeOf(trivet.ErrTooLarge)
	case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusUnsupportedMediaType:
		p.Code = trivet.CodeOf(trivet.ErrInvalid)
	}
	return p
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line[:min(len(line), 200)]
}

// isHeadFault reports whether another head, or this one later, may serve what this one did not.
func isHeadFault(err error) bool {
	var p *trivet.Problem
	if !errors.As(err, &p) {
		return !errors.Is(err, trivet.ErrInvalid)
	}
	return errors.Is(p, trivet.ErrUnavailable) || errors.Is(p, trivet.ErrUnknown) || p.Code == trivet.CodeInternal
}

// isUndone reports whether a failed request cannot have been carried out: it was not sent, or the head reported so.
// After a timeout that is unknown.
func isUndone(err error) bool {
	var p *trivet.Problem
	var u *unsent
	return errors.As(err, &u) || errors.As(err, &p) && errors.Is(p, trivet.ErrUnavailable)
}
