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

// call is one request, to be sent to heads until one serves it.
type call struct {
	method string
	path   string
	query  url.Values
	header http.Header
	body   []byte
	// once: it must not be sent again when it may have been carried out.
	once bool
	// timeout bounds one try; 0 means tryTimeout, below 0 that the answer is a stream.
	timeout time.Duration
	// begin bounds the wait for the answer's first byte in one try; 0: as timeout.
	begin time.Duration
	// spread lets a call that is in no hurry wait up to so long, by chance, before another head takes the place of one
	// that served until now: it is one of many who lost the same head.
	spread time.Duration
	// retry: it waits for a head also where the client fails fast.
	retry bool
	// sign adds a proof to each try; nil: the account's token.
	sign func(req *http.Request, body []byte)
}

// json sends a call and reads the answer into out, unless that is nil. inDoubt says that an earlier try may have been
// carried out, its answer lost.
func (c *Client) json(ctx context.Context, cl call, out any) (inDoubt bool, err error) {
	resp, inDoubt, err := c.send(ctx, cl)
	if err != nil {
		return inDoubt, err
	}
	defer resp.Body.Close()
	if out == nil {
		return inDoubt, nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return inDoubt, fmt.Errorf("%s %s: answer: %w", cl.method, cl.path, err)
	}
	return inDoubt, nil
}

// tries is what became of a call so far.
type tries struct {
	call
	inDoubt  bool    // one of them may have been carried out
	failures []error // of the last round
	unauthenticated,
	answers int // of the last round: who could not prove that they belong to the cluster, and who did and could not serve
	complete bool // nobody was left out of the last round
}

// errNoHead: no head could be reached.
var errNoHead = errors.New("no head can be reached")

// send goes round the heads until one serves the call or patience ends. The answer's body must be closed.
func (c *Client) send(ctx context.Context, cl call) (resp *http.Response, inDoubt bool, err error) {
	began := time.Now()
	t := &tries{call: cl}
	hasty := c.failFast && !t.retry
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		up := c.heads.awaitUp()
		patience := max(c.retryTimeout, 0)
		if hasty && !t.inDoubt {
			patience = min(patience, failFastTimeout)
		}
		last := time.Since(began)+pause > patience
		resp, err := c.round(ctx, t, last)
		if resp != nil || err != nil {
			return resp, t.inDoubt, err
		}
		if t.answers > 0 && t.method == http.MethodGet && c.session.acceptStale() {
			continue
		}
		failFast := hasty && t.answers == 0 && !t.inDoubt
		if last || t.complete && (failFast || t.unauthenticated == len(t.failures)) {
			return nil, t.inDoubt, t.noHead()
		}
		if err := wait(ctx, jitter(pause), up); err != nil {
			return nil, t.inDoubt, t.err(errors.Join(t.failures...))
		}
	}
}

// round asks the heads once. Those that are down are left to their monitors while there are others, but for the last
// round: a connection that broke is worth another try before them. Those that nobody has reached yet are asked when
// all are down. It gives neither answer nor error where it is worth going round again.
func (c *Client) round(ctx context.Context, t *tries, last bool) (*http.Response, error) {
	t.failures, t.unauthenticated, t.answers = nil, 0, 0
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

func (c *Client) each(ctx context.Context, t *tries, urls []string) (*http.Response, error) {
	for i, url := range urls {
		t.begin = 0
		if i+1 < len(urls) && t.timeout <= 0 {
			t.begin = t.responseTimeout()
		}
		if c.heads.isChange(url) { // a head need not hold a second connection of each of thousands
			c.http.CloseIdleConnections()
		}
		resp, err := c.try(ctx, url, t.call)
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

// responseTimeout is how long one of several heads may take to begin its answer.
func (t *tries) responseTimeout() time.Duration {
	if t.method == http.MethodGet {
		return readAnswer
	}
	return writeAnswer
}

// note tells the set of a failure. A caller that goes away says nothing about the head; one whose time is up may do.
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

func (t *tries) failed(url string, err error) {
	t.failures = append(t.failures, fmt.Errorf("%s: %w", url, err))
	var p *trivet.Problem
	switch {
	case isNotOfCluster(err):
		t.unauthenticated++
	case errors.As(err, &p):
		t.answers++
	}
}

// err says of a call that was given up whether it may have been carried out.
func (t *tries) err(cause error) error {
	outcome := trivet.ErrUnavailable
	if t.inDoubt && t.method != http.MethodGet {
		outcome = trivet.ErrUnknown
	}
	return fmt.Errorf("%s %s: %w: %w", t.method, t.path, outcome, causes{cause})
}

// causes are why a call was given up. That one head was unavailable for sure does not make the call undone, and that
// one is not of the cluster says nothing of who asks.
type causes struct{ error }

func (c causes) Is(target error) bool {
	return target != trivet.ErrUnavailable && target != trivet.ErrUnauthenticated && errors.Is(c.error, target)
}
func (c causes) As(target any) bool { return errors.As(c.error, target) }

func (t *tries) noHead() error {
	cause := errors.Join(t.failures...)
	switch {
	case t.unauthenticated == len(t.failures) && !t.inDoubt:
		hint := "check the pin of the CA in the config file"
		var invalid x509.CertificateInvalidError
		if errors.As(cause, &invalid) && invalid.Reason == x509.Expired {
			hint = "check the clock of this computer and the head's: here it is " + time.Now().UTC().Format(time.RFC3339)
		}
		return &trivet.Error{Op: "connect", Hint: hint, Err: fmt.Errorf("%w: %w", trivet.ErrUnauthenticated, cause)}
	case t.answers == 0:
		return t.err(fmt.Errorf("%w: %w", errNoHead, cause))
	}
	return t.err(fmt.Errorf("no head served it: %w", cause))
}

// wait waits for d, for a head that comes up, or for the end of ctx.
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
