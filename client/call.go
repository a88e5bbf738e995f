package client

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"github.com/trivet-project/trivet"
)

// call is one request, which is sent to heads until one serves it.
type call struct {
	method string
	path   string
	query  url.Values
	header http.Header
	body   []byte
	// once: it must not be sent again if it may have been carried out.
	once bool
	// timeout bounds one attempt; 0 means tryTimeout, and below 0 the response is a stream.
	timeout time.Duration
	// begin bounds the wait for the first byte of the response while another head may serve the call; 0: see
	// responseTimeout.
	begin time.Duration
	// prepare is how long any head may take before the first byte of the response; 0: see begin and timeout.
	prepare time.Duration
	// spread is the maximum of a random wait before the call moves from a head that served until now to another one,
	// since many clients lost the same head.
	spread time.Duration
	// retry: it waits for a head even if the client fails fast.
	retry bool
	// sign signs each attempt; nil: the account's token is sent.
	sign func(req *http.Request, body []byte)
}

// json sends a call and reads the response into out, unless that is nil. inDoubt reports that an earlier attempt may
// have been carried out and its response lost.
func (c *Client) json(ctx context.Context, cl call, out any) (inDoubt bool, err error) {
	resp, inDoubt, err := c.send(ctx, cl)
	if err != nil {
		return inDoubt, err
	}
	defer resp.Body.Close()
	if out == nil || resp.StatusCode == http.StatusNoContent {
		return inDoubt, nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return inDoubt, fmt.Errorf("%s %s: response: %w", cl.method, cl.path, err)
	}
	return inDoubt, nil
}

// attempts is the outcome of the attempts of a call so far.
type attempts struct {
	call
	inDoubt         bool    // one of them may have been carried out
	failures        []error // of the last round
	unauthenticated int     // of the last round: servers that did not prove that they belong to the cluster
	problems        int     // of the last round: heads that responded that they cannot serve
	complete        bool    // the last round included every head
}

// errNoHead: no head could be reached.
var errNoHead = errors.New("no head can be reached")

// send tries the heads in rounds until one serves the call or the timeout ends. The response's body must be closed.
func (c *Client) send(ctx context.Context, cl call) (resp *http.Response, inDoubt bool, err error) {
	began := time.Now()
	t := &attempts{call: cl}
	failFast := c.failFast && !t.retry
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		up := c.heads.awaitUp()
		timeout := max(c.retryTimeout, 0)
		if failFast && !t.inDoubt {
			timeout = min(timeout, failFastTimeout)
		}
		last := time.Since(began)+pause > timeout
		resp, err := c.round(ctx, t, last)
		if resp != nil || err != nil {
			return resp, t.inDoubt, err
		}
		if t.problems > 0 && t.method == http.MethodGet && c.session.acceptStale() {
			continue
		}
		unreachable := failFast && t.problems == 0 && !t.inDoubt
		if last || t.complete && (unreachable || t.unauthenticated == len(t.failures)) {
			return nil, t.inDoubt, t.noHead()
		}
		if err := wait(ctx, jitter(pause), up); err != nil {
			return nil, t.inDoubt, t.err(errors.Join(t.failures...))
		}
	}
}

// round tries each head once. Heads that are down are left to their monitors while there are others, except in the last
// round: another attempt after a broken connection has precedence. Learned heads that were never reached are tried when
// all others are down. It returns neither a response nor an error if another round may succeed.
func (c *Client) round(ctx context.Context, t *attempts, last bool) (*http.Response, error) {
	t.failures, t.unauthenticated, t.problems = nil, 0, 0
	likely, down, far := c.heads.round()
	resp, err := c.each(ctx, t, likely)
	t.complete = len(likely) == 0
	if resp == nil && err == nil && (last || t.complete) {
		resp, err = c.each(ctx, t, down)
	}
	if resp == nil && err == nil && t.complete {
		resp, err = c.each(ctx, t, far)
	}
	return resp, err
}

func (c *Client) each(ctx context.Context, t *attempts, urls []string) (*http.Response, error) {
	for i, url := range urls {
		cl := t.call
		cl.begin = 0
		if i+1 < len(urls) {
			cl.begin = t.responseTimeout()
		}
		if c.heads.isChange(url) { // a head must not hold idle connections of thousands of agents
			c.http.CloseIdleConnections()
		}
		resp, err := c.try(ctx, url, cl)
		if err == nil || ctx.Err() == nil && !isHeadFault(err) {
			c.heads.served(url, t.method != http.MethodGet && err == nil)
			return resp, err
		}
		wasUp := c.note(ctx, url, err)
		t.inDoubt = t.inDoubt || !isUndone(err)
		if ctx.Err() != nil {
			return nil, t.err(fmt.Errorf("%w: %s: %w", context.Cause(ctx), url, err))
		}
		if t.once && !isUndone(err) {
			return nil, t.err(err)
		}
		t.failed(url, err)
		if wasUp && t.spread > 0 && i+1 < len(urls) {
			if err := sleep(ctx, rand.N(t.spread)); err != nil {
				return nil, t.err(err)
			}
		}
	}
	return nil, nil
}

// responseTimeout bounds the wait of one of several heads for the first byte of the response; 0: no bound of its own.
func (t *attempts) responseTimeout() time.Duration {
	switch {
	case t.begin > 0 || t.timeout > 0:
		return t.begin
	case t.method == http.MethodGet:
		return readResponseTimeout
	}
	return writeResponseTimeout
}

// note records a failure of a head. A cancelled context is no failure of the head; an expired deadline may be one.
func (c *Client) note(ctx context.Context, url string, err error) (wasUp bool) {
	var p *trivet.Problem
	switch {
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return c.heads.failed(url, HeadUnready, err)
	case ctx.Err() != nil, errors.As(err, &p) && p.Code == trivet.CodeInternal: // as it may be the request's
		return false
	}
	return c.heads.failed(url, stateAfter(err), err)
}

func (t *attempts) failed(url string, err error) {
	t.failures = append(t.failures, fmt.Errorf("%s: %w", url, err))
	var p *trivet.Problem
	switch {
	case isNotOfCluster(err):
		t.unauthenticated++
	case errors.As(err, &p):
		t.problems++
	}
}

// err returns the error of a call that has failed: ErrUnknown if it may have been carried out.
func (t *attempts) err(cause error) error {
	outcome := trivet.ErrUnavailable
	if t.inDoubt && t.method != http.MethodGet {
		outcome = trivet.ErrUnknown
	}
	return fmt.Errorf("%s %s: %w: %w", t.method, t.path, outcome, causes{cause})
}

// causes are the reasons why a call has failed. They match neither ErrUnavailable, since another head may have carried
// out the call, nor ErrUnauthenticated, since that is about a server and not about the caller.
type causes struct{ error }

func (c causes) Is(target error) bool {
	return target != trivet.ErrUnavailable && target != trivet.ErrUnauthenticated && errors.Is(c.error, target)
}
func (c causes) As(target any) bool { return errors.As(c.error, target) }

func (t *attempts) noHead() error {
	cause := errors.Join(t.failures...)
	switch {
	case t.unauthenticated == len(t.failures) && !t.inDoubt:
		hint := "check the pin of the CA in the config file"
		var invalid x509.CertificateInvalidError
		if errors.As(cause, &invalid) && invalid.Reason == x509.Expired {
			hint = "check the clocks of this computer and the head: here it is " + time.Now().UTC().Format(time.RFC3339)
		}
		return &trivet.Error{Op: "connect", Hint: hint, Err: fmt.Errorf("%w: %w", trivet.ErrUnauthenticated, cause)}
	case t.problems == 0:
		return t.err(fmt.Errorf("%w: %w", errNoHead, cause))
	}
	return t.err(fmt.Errorf("no head served it: %w", cause))
}

// wait waits for d, until a head comes up, or until ctx ends.
func wait(ctx context.Context, d time.Duration, up <-chan struct{}) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-up:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}
