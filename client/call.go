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
	hopeless bool    // of the last round: none of the heads belongs to the cluster
	failures []error // of the last round
}

// send goes round the heads until one serves the call or patience ends. The answer's body must be closed.
func (c *Client) send(ctx context.Context, cl call) (resp *http.Response, inDoubt bool, err error) {
	deadline := time.Now().Add(max(c.patience, 0))
	t := &tries{call: cl}
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		resp, err := c.round(ctx, t)
		if resp != nil || err != nil {
			return resp, t.inDoubt, err
		}
		if t.hopeless || time.Now().Add(pause).After(deadline) {
			return nil, t.inDoubt, t.noHead()
		}
		if err := sleep(ctx, pause/2+rand.N(pause)); err != nil {
			return nil, t.inDoubt, t.err(errors.Join(t.failures...))
		}
	}
}

// round asks every head once. It gives neither answer nor error where it is worth going round again.
func (c *Client) round(ctx context.Context, t *tries) (*http.Response, error) {
	t.failures, t.hopeless = nil, true
	for _, head := range c.heads.round() {
		resp, err := c.try(ctx, head, t.call)
		if err == nil {
			c.heads.served(head)
			return resp, nil
		}
		if ctx.Err() == nil && !isHeadsFault(err) {
			c.heads.served(head)
			return nil, err
		}
		c.heads.failed(head)
		maybeDone := !isUnsent(err) && !errors.Is(err, trivet.ErrUnavailable)
		t.inDoubt = t.inDoubt || maybeDone
		if ctx.Err() != nil {
			return nil, t.err(context.Cause(ctx))
		}
		if maybeDone && t.once {
			return nil, t.err(err)
		}
		t.failures = append(t.failures, fmt.Errorf("%s: %w", head, err))
		t.hopeless = t.hopeless && isStranger(err)
	}
	return nil, nil
}

// err says of a call that was given up whether it may have been carried out.
func (t *tries) err(cause error) error {
	kind := trivet.ErrUnavailable
	if t.inDoubt && t.method != http.MethodGet {
		kind = trivet.ErrUnknown
	}
	return fmt.Errorf("%s %s: %w: %w", t.method, t.path, kind, cause)
}

func (t *tries) noHead() error {
	err := t.err(fmt.Errorf("no head served it: %w", errors.Join(t.failures...)))
	if t.hopeless {
		hint := "check the pin of the CA in the config file"
		var invalid x509.CertificateInvalidError
		if errors.As(err, &invalid) && invalid.Reason == x509.Expired {
			hint = "check the clock of this computer and the head's: here it is " + time.Now().UTC().Format(time.RFC3339)
		}
		return &trivet.Error{Op: "connect", Hint: hint,
			Err: fmt.Errorf("%w: %w", trivet.ErrUnauthenticated, errors.Join(t.failures...))}
	}
	return err
}
