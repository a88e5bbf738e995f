package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
)

// errStalled ends a connection that receives no data.
var errStalled = fmt.Errorf("%w: the connection stalled", trivet.ErrUnavailable)

// conn is one HTTP response. It is cancelled when it stalls.
type conn struct {
	ctx   context.Context
	body  io.ReadCloser
	watch *time.Timer
	stall time.Duration
	end   context.CancelCauseFunc
}

// dial requests a URL from an offset. size is the required total length.
func (s *source) dial(ctx context.Context, url string, offset, size int64) (*conn, error) {
	c := &conn{stall: s.stall}
	c.ctx, c.end = context.WithCancelCause(ctx)
	c.watch = time.AfterFunc(s.stall, func() { c.end(errStalled) })
	err := c.request(s.client, url, offset, size)
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *conn) request(client *http.Client, url string, offset, size int64) error {
	req, err := http.NewRequestWithContext(c.ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("%w: %w", trivet.ErrInvalid, err)
	}
	req.Header.Set("Accept-Encoding", "identity")
	if offset > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	resp, err := client.Do(req)
	if err != nil {
		return c.cause(err)
	}
	c.body = resp.Body
	if err := checkResponse(resp, url, offset, size); err != nil {
		return err
	}
	if resp.StatusCode == http.StatusOK { // the server does not support ranges
		return c.skip(offset)
	}
	return nil
}

func (c *conn) skip(n int64) error {
	discard := make([]byte, min(n, stepBytes))
	for n > 0 {
		m := min(n, stepBytes)
		if err := c.readFull(discard[:m]); err != nil {
			return err
		}
		n -= m
	}
	return nil
}

func checkResponse(resp *http.Response, url string, offset, size int64) error {
	var kind error
	rangeOf := fmt.Sprintf("bytes %d-%d/%d", offset, size-1, size)
	switch {
	case resp.StatusCode == http.StatusOK && (resp.ContentLength == size || resp.ContentLength < 0),
		resp.StatusCode == http.StatusPartialContent && resp.Header.Get("Content-Range") == rangeOf:
		return nil
	case resp.StatusCode < 300, resp.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		kind = fmt.Errorf("%w: the content does not have the %d bytes of the reference", trivet.ErrInvalid, size)
	case resp.StatusCode == http.StatusNotFound:
		kind = trivet.ErrNotFound
	case resp.StatusCode == http.StatusUnauthorized, resp.StatusCode == http.StatusForbidden:
		kind = fmt.Errorf("%w: %s", trivet.ErrForbidden, resp.Status)
	default:
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 200))
		kind = fmt.Errorf("%w: %s %s", trivet.ErrUnavailable, resp.Status, strings.TrimSpace(string(text)))
	}
	return fmt.Errorf("%s: %w", url, kind)
}

// stepBytes must be received within the stall timeout.
const stepBytes = 64 << 10

// readFull fills b. A shorter response is an error that can be retried.
func (c *conn) readFull(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), stepBytes)
		c.watch.Reset(c.stall)
		if _, err := io.ReadFull(c.body, b[:n]); err != nil {
			return c.cause(err)
		}
		b = b[n:]
	}
	c.watch.Stop() // the time until the next read does not count
	return nil
}

// cause returns the cause of a connection's error.
func (c *conn) cause(err error) error {
	if errors.Is(context.Cause(c.ctx), errStalled) {
		return errStalled
	}
	return fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
}

func (c *conn) close() {
	c.watch.Stop()
	c.end(context.Canceled)
	if c.body != nil {
		c.body.Close()
	}
}
