package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/trivet-project/trivet"
)

// maxAnswer bounds a response that is read into memory, in bytes. A page of records is far smaller.
const maxAnswer = 256 << 20

// try sends the call to one head once.
func (c *Client) try(ctx context.Context, head string, cl call) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	// The response of a stream begins at once, though it may never end.
	whole := cmp.Or(max(cl.timeout, 0), tryTimeout)
	timer := time.AfterFunc(cmp.Or(cl.prepare, cl.begin, whole), func() { cancel(errSilent) })
	endProbe := c.probeStopped(ctx, head, cl.begin, cancel)
	resp, err := c.request(ctx, head, cl)
	endProbe()
	if err == nil {
		timer.Reset(whole)
	}
	if err == nil && resp.StatusCode >= 300 {
		err = readProblem(resp)
	}
	if err == nil && cl.timeout >= 0 {
		err = readWhole(resp)
	}
	if err != nil {
		timer.Stop()
		cancel(nil)
		return nil, err
	}
	timer.Stop()
	resp.Body = &closeBoth{resp.Body, cancel}
	return resp, nil
}

// probeStopped cancels an attempt at a head that has not responded after a moment and does not respond to a probe either:
// it was stopped, or its cable cut. A head at work responds. It does so only while another head may serve the call, and
// not for agents, which are many. The returned function ends it.
func (c *Client) probeStopped(ctx context.Context, head string, begin time.Duration,
	cancel context.CancelCauseFunc) (end func()) {
	if begin <= probeAfter || c.token == "" {
		return func() {}
	}
	attempt, stop := context.WithCancel(ctx)
	timer := time.AfterFunc(probeAfter, func() {
		if c.heads.isSilent(attempt, head) {
			cancel(errSilent)
		}
	})
	return func() { timer.Stop(); stop() }
}

// readWhole reads the response into memory: if the head fails while sending it, another one is tried.
func readWhole(resp *http.Response) error {
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read response: %w", err)
	}
	resp.Body = io.NopCloser(bytes.NewReader(data))
	return nil
}

// closeBoth ends the context of an attempt with its body.
type closeBoth struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

func (b *closeBoth) Close() error {
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}

func (c *Client) request(ctx context.Context, head string, cl call) (*http.Response, error) {
	u := head + cl.path
	if len(cl.query) > 0 {
		u += "?" + cl.query.Encode()
	}
	var connected atomic.Bool
	req, err := http.NewRequestWithContext(ctx, cl.method, u, bytes.NewReader(cl.body))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %w", cl.method, cl.path, trivet.ErrInvalid, err)
	}
	for name, values := range cl.header {
		req.Header[name] = values
	}
	if len(cl.body) > 0 && req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/json")
	}
	c.identify(req)
	if cl.sign != nil {
		cl.sign(req, cl.body)
	}
	seen := c.session.setRevision(req)
	resp, err := c.http.Do(withTrace(req, &connected))
	if err != nil {
		if !connected.Load() {
			err = &unsent{err}
		}
		return nil, err
	}
	c.session.learn(resp, seen)
	c.heads.learn(resp.Header.Get(trivet.HeaderHeads))
	c.Follow(resp.Header.Get(trivet.HeaderTrust))
	return resp, nil
}

// withTrace records when a request has a connection. Before that, the head has received nothing of it.
func withTrace(req *http.Request, connected *atomic.Bool) *http.Request {
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	return req.WithContext(httptrace.WithClientTrace(req.Context(), trace))
}

// unsent is the error of a request that cannot have reached the head.
type unsent struct{ error }

func (u *unsent) Unwrap() error { return u.error }

func (c *Client) identify(req *http.Request) {
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if c.agent != "" {
		req.Header.Set("User-Agent", c.agent)
	}
}

// stateAfter returns the state of a head after a failure.
func stateAfter(err error) HeadState {
	var p *trivet.Problem
	if errors.As(err, &p) {
		return HeadUnready
	}
	return HeadDown
}

// isNotOfCluster reports whether the server did not prove that it belongs to the cluster.
func isNotOfCluster(err error) bool {
	var bad *tls.CertificateVerificationError
	return errors.As(err, &bad) || errors.Is(err, trivet.ErrUnauthenticated)
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
