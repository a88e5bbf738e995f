package peer

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/trivet-project/trivet"
	sdk "github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/auth"
)

// Client calls other heads with the certificate of this head's member.
type Client struct {
	http *http.Client
	info func() Info
	from func() net.Addr
}

// NewClient returns a client. cert returns the member's certificate, root the cluster's CA; both are called for each
// connection. info returns what this head reports of itself; nil: it sends no pings.
func NewClient(cert auth.CertFunc, root func() *auth.Root, info func() Info) *Client {
	c := &Client{info: info, from: func() net.Addr { return nil }}
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		cfg := root().PeerTLS(cert)
		cfg.NextProtos = []string{"h2"}
		dialer := &net.Dialer{Timeout: dialTimeout, LocalAddr: c.from()}
		conn, err := (&tls.Dialer{NetDialer: dialer, Config: cfg}).DialContext(ctx, network, addr)
		if err != nil && root().Replaced(err) {
			return nil, fmt.Errorf("%w: the cluster's CA was replaced without this head: %w", trivet.ErrForbidden, err)
		}
		return conn, err
	}
	t := &http.Transport{DialTLSContext: dial, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true,
		HTTP2: &http.HTTP2Config{SendPingTimeout: silence, PingTimeout: silence}}
	c.http = &http.Client{Transport: t}
	return c
}

// CallFrom sets what returns the address from which this client calls; nil: the kernel chooses. It is called before
// the first call.
func (c *Client) CallFrom(from func() net.Addr) { c.from = from }

// dialTimeout bounds the connection to another head.
const dialTimeout = 2 * time.Second

// Call sends a request to an endpoint of the head at a URL and decodes its response.
func (c *Client) Call(ctx context.Context, url, path string, in, out any) error {
	return Call(ctx, c.http, url, path, in, out)
}

// CallFullHead is Call for what only a full head may respond, such as keys: it refuses the response of a witness.
func (c *Client) CallFullHead(ctx context.Context, url, path string, in, out any) error {
	return call(ctx, c.http, url, path, in, out, fullHead(url))
}

// fullHead refuses the response of a witness.
func fullHead(url string) func(*http.Response) error {
	return func(resp *http.Response) error {
		if resp.TLS == nil || auth.IsWitness(resp.TLS) {
			return fmt.Errorf("%w: %s is the address of a witness", trivet.ErrForbidden, url)
		}
		return nil
	}
}

// pingTimeout bounds one ping.
const pingTimeout = 2 * time.Second

// pingPath is the endpoint that every head serves.
const pingPath = "ping"

// Ping sends this head's information to the head at a URL and returns that head's. It fails with ErrForbidden where
// this head was removed from the cluster.
func (c *Client) Ping(ctx context.Context, url string) (info Info, err error) {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	err = c.Call(ctx, url, pingPath, c.info(), &info)
	return info, err
}

// OpenFullHead requests content of the full head at a URL, which the caller must close. It fails with ErrNotFound where
// that has none, and refuses the response of a witness.
func (c *Client) OpenFullHead(ctx context.Context, url, path string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+Prefix+path, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", trivet.ErrInvalid, err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
	}
	err = fullHead(url)(resp)
	if err == nil && resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	resp.Body.Close()
	if err != nil {
		return nil, err
	}
	class := trivet.ErrUnavailable
	if resp.StatusCode == http.StatusNotFound {
		class = trivet.ErrNotFound
	}
	return nil, fmt.Errorf("%w: %s responds %s", class, url, resp.Status)
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// maxResponse bounds a response, in bytes.
const maxResponse = 32 << 20

// Call sends a request by an HTTP client to an endpoint of the head at a URL and decodes its response. It fails with
// ErrUnavailable where the head cannot be reached.
func Call(ctx context.Context, client *http.Client, url, path string, in, out any) error {
	return call(ctx, client, url, path, in, out, func(*http.Response) error { return nil })
}

// call is Call with a check of the response before it is read.
func call(ctx context.Context, client *http.Client, url, path string, in, out any,
	check func(*http.Response) error) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+Prefix+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%w: %w", trivet.ErrInvalid, err)
	}
	resp, err := client.Do(req)
	switch {
	case errors.Is(err, trivet.ErrUnauthenticated), errors.Is(err, trivet.ErrForbidden):
		return err
	case err != nil:
		return &noResponse{fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)}
	}
	defer resp.Body.Close()
	if err := check(resp); err != nil {
		return err
	}
	return decode(resp, out)
}

// noResponse is the error of a request to which there was no response.
type noResponse struct{ error }

func (e *noResponse) Unwrap() error { return e.error }

// IsSilent reports whether an error of a call is that nothing was heard of the head in time, or that no process
// responds at its address. A response, a certificate that is not accepted, and every error that is of this head itself, are not
// silence.
func IsSilent(err error) bool {
	var silent *noResponse
	if !errors.As(err, &silent) {
		return false
	}
	var netErr net.Error
	if errors.As(err, &netErr) && netErr.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	for _, gone := range []error{syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EPIPE, syscall.EHOSTUNREACH, io.EOF,
		io.ErrUnexpectedEOF} {
		if errors.Is(err, gone) {
			return true
		}
	}
	return strings.Contains(err.Error(), "client connection lost") // of HTTP/2, which has no error for it
}

// decode reads a response, or the error that the head responded with.
func decode(resp *http.Response, out any) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse))
	if err != nil {
		return fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
	}
	if resp.StatusCode != http.StatusOK {
		return sdk.ParseProblem(resp.StatusCode, text)
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("%w: the response is not valid: %w", trivet.ErrUnavailable, err)
	}
	return nil
}
