package membership

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	sdk "github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/peer"
)

const (
	// joinRetryInterval is the time between two rounds of requests.
	joinRetryInterval = time.Second
	// joinWarnInterval is how often a head that still retries logs a warning.
	joinWarnInterval = 30 * time.Second
	// joinRequestTimeout bounds one request.
	joinRequestTimeout = 30 * time.Second
)

// hintUnreachable is the hint where no head responds.
const hintUnreachable = "check --join; the token is still valid"

// SendJoin sends the request to the heads at these URLs, one after the other, until one accepts it, ctx ends, or one
// refuses it with an error that is final.
func SendJoin(ctx context.Context, urls []string, t Token, req JoinRequest, log *slog.Logger) (*JoinResponse, error) {
	trust, err := sdk.TLSConfig(t.Trust)
	if err != nil {
		return nil, err
	}
	urls = slices.Clone(urls)
	for i, u := range urls {
		if urls[i], err = headURL(u); err != nil {
			return nil, err
		}
	}
	client := &http.Client{Timeout: joinRequestTimeout, Transport: &http.Transport{
		DialContext:     (&net.Dialer{LocalAddr: req.from}).DialContext,
		TLSClientConfig: trust, ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	req.Token, req.Protocol = t.Secret.Reveal(), peer.Protocol
	return retryJoin(ctx, log, func() (*JoinResponse, error) { return sendJoinOnce(ctx, client, urls, req) })
}

// retryJoin sends until that succeeds, ctx ends, or an error is final.
func retryJoin(ctx context.Context, log *slog.Logger, send func() (*JoinResponse, error)) (*JoinResponse, error) {
	var last error
	for warned := time.Now(); ; {
		resp, err := send()
		switch {
		case err == nil || !peer.Retryable(err):
			return resp, err
		case ctx.Err() != nil: // err may contain nothing else
			return nil, withReachHint(cmp.Or(last, err))
		case last == nil || last.Error() != err.Error():
			log.Info("not joined yet; retrying", "error", err)
		}
		if last = err; time.Since(warned) >= joinWarnInterval {
			warned = time.Now()
			log.Warn("still not joined; retrying", "error", withReachHint(err))
		}
		select {
		case <-time.After(joinRetryInterval):
		case <-ctx.Done():
		}
	}
}

// withReachHint adds a hint to the error of a head that cannot be reached. A head that responds sends its own.
func withReachHint(err error) error {
	if p := (*trivet.Problem)(nil); errors.As(err, &p) {
		return err
	}
	return &trivet.Error{Op: "request to join", Err: err, Hint: hintUnreachable}
}

// sendJoinOnce sends the request to each head once, until one accepts it or refuses it with an error that is final.
func sendJoinOnce(ctx context.Context, client *http.Client, urls []string, req JoinRequest) (*JoinResponse, error) {
	var last error
	for _, u := range urls {
		var resp JoinResponse
		req.Time = time.Now()
		err := peer.Call(ctx, client, u, joinPath, req, &resp)
		if err == nil {
			return &resp, nil
		}
		if last = fmt.Errorf("%s: %w", u, explainJoin(err)); !peer.Retryable(last) {
			break
		}
	}
	return nil, last
}

// explainJoin adds a hint to an error that another program or another cluster at this URL causes.
func explainJoin(err error) error {
	if p := (*trivet.Problem)(nil); errors.Is(err, trivet.ErrUnauthenticated) && !errors.As(err, &p) {
		// by its certificate
		return &trivet.Error{Op: "request to join", Err: err,
			Hint: "pass a token of the cluster at this URL, or the URL of the token's cluster"}
	}
	if noTLS := (tls.RecordHeaderError{}); errors.Is(err, http.ErrSchemeMismatch) || errors.As(err, &noTLS) {
		return &trivet.Error{Op: "request to join",
			Err:  fmt.Errorf("%w: the server there does not speak TLS", trivet.ErrInvalid),
			Hint: "pass the port of a head's API, which is 7480 unless its --api is set; the token is still valid"}
	}
	return err
}

// headURL returns the URL of a head, also for host:port.
func headURL(text string) (string, error) {
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil || validatePeer(text) != nil {
		return "", &trivet.FieldError{Field: "--join",
			Problem: fmt.Sprintf("%.300q is not https://HOST:PORT, the API of a head", text)}
	}
	return "https://" + u.Host, nil
}
