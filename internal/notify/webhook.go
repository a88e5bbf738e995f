package notify

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/limit"
)

// Bounds of one request.
const (
	requestTimeout = 10 * time.Second
	maxHeader      = 16 << 10
	maxBody        = 4 << 10 // of the response, which is read to use the connection again, and not kept
)

// maxRetryAfter bounds what a receiver may ask for.
const maxRetryAfter = time.Hour

// ErrGone means that the receiver wants no more messages.
var ErrGone = errors.New("the receiver wants no more events")

// RetryError is a failure whose receiver named a time to try again.
type RetryError struct {
	Err   error
	After time.Duration
}

func (e *RetryError) Error() string { return e.Err.Error() }

func (e *RetryError) Unwrap() error { return e.Err }

// Webhook sends messages by HTTP POST, signed as in https://www.standardwebhooks.com (version 1 of the signature). It
// must be closed.
type Webhook struct {
	url    string
	keys   [][]byte
	client *http.Client
}

// NewWebhook returns the sender for a webhook. keys are the keys of the signatures: the receiver accepts a request
// that it can verify by one of them.
func NewWebhook(w *trivet.Webhook, keys ...[]byte) (*Webhook, error) {
	dialer := &net.Dialer{Timeout: requestTimeout / 2, ControlContext: limit.CheckOutbound}
	config, err := tlsConfig(w.CA, "spec.webhook.ca")
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{DialContext: dialer.DialContext, MaxResponseHeaderBytes: maxHeader, MaxConnsPerHost: 1,
		ForceAttemptHTTP2: true, TLSClientConfig: config}
	return &Webhook{url: w.URL, keys: keys, client: &http.Client{Transport: transport, Timeout: requestTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}, nil
}

// tlsConfig returns how a server is verified: by the certificates of a field, or those that this host trusts.
func tlsConfig(ca, field string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca == "" {
		return config, nil
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM([]byte(ca)) {
		return nil, fmt.Errorf("%w: %s has no certificate that can be read", trivet.ErrInvalid, field)
	}
	return config, nil
}

// Close closes the connections.
func (w *Webhook) Close() { w.client.CloseIdleConnections() }

// send sends a message once. It succeeds when the receiver answers with a status of 200 to 299.
func (w *Webhook) send(ctx context.Context, m *Message) error {
	body, err := m.body()
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	now := strconv.FormatInt(time.Now().Unix(), 10)
	req.Header.Set("Content-Type", "application/cloudevents+json; charset=utf-8")
	req.Header.Set("User-Agent", "trivet")
	req.Header.Set("Webhook-Id", m.ID)
	req.Header.Set("Webhook-Timestamp", now)
	req.Header.Set("Webhook-Signature", w.signature(m.ID, now, body))
	resp, err := w.client.Do(req)
	if err != nil {
		return withoutURL(err)
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, maxBody)
	return outcome(resp)
}

// signature returns a signature by each key.
func (w *Webhook) signature(id, timestamp string, body []byte) string {
	var all []string
	for _, key := range w.keys {
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%s.%s", id, timestamp, body)
		all = append(all, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	return strings.Join(all, " ")
}

// outcome returns the error of a response.
func outcome(resp *http.Response) error {
	code := resp.StatusCode
	err := fmt.Errorf("the receiver answered %d (%s)", code, http.StatusText(code))
	switch {
	case code >= 200 && code < 300:
		return nil
	case code == http.StatusGone:
		return fmt.Errorf("%w: it answered 410 (Gone)", ErrGone)
	case code >= 300 && code < 400:
		return fmt.Errorf("%w; redirects are not followed: set spec.webhook.url to the final address", err)
	}
	if s, bad := strconv.Atoi(resp.Header.Get("Retry-After")); bad == nil && s > 0 {
		return &RetryError{err, time.Duration(min(s, int(maxRetryAfter/time.Second))) * time.Second}
	}
	return err
}

// withoutURL removes the URL from an error of a request: its query may have what is not for logs.
func withoutURL(err error) error {
	var failed *url.Error
	if !errors.As(err, &failed) {
		return err
	}
	if failed.Timeout() {
		return fmt.Errorf("the receiver did not answer within %s", requestTimeout)
	}
	return failed.Err
}
