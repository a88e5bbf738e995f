package bmc

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
	"net/netip"
	"net/url"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/trivet-project/trivet"
)

// Bounds of responses in size and time. BMCs stay well below them.
const (
	maxRedfishBody    = 1 << 20
	maxRedfishHeader  = 64 << 10
	maxRedfishHops    = 3
	redfishCall       = 30 * time.Second
	logoutTimeout     = 5 * time.Second
	maxRedfishPathLen = 1024
)

// errCertificate: the service's certificate is not trusted.
var errCertificate = errors.New("the BMC's certificate is not trusted")

// redfishWire sends requests to one service, and to no other host, whatever its answers say.
type redfishWire struct {
	base   url.URL // scheme and host
	http   *http.Client
	user   string
	secret string
	basic  bool   // send user and password
	token  string // of a session; sent if not empty
}

// answer is the headers of a successful response that callers need.
type answer struct {
	etag     string
	token    string
	location string // path, checked
}

// newRedfishWire parses the address. system is its path, if it has one.
func newRedfishWire(cfg Config) (w *redfishWire, system string, err error) {
	address := cfg.Address
	if !strings.Contains(address, "://") {
		address = "https://" + address
	}
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return nil, "", fmt.Errorf("%w: address %.100q is not a URL", trivet.ErrInvalid, cfg.Address)
	case u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, "", fmt.Errorf("%w: address %.100q has no host, or more than host and path",
			trivet.ErrInvalid, u.Redacted())
	case u.Scheme != "https" && (u.Scheme != "http" || !cfg.Insecure):
		return nil, "", fmt.Errorf("%w: address %.100q: only https keeps the password secret", trivet.ErrInvalid,
			cfg.Address)
	}
	if strings.Trim(u.Path, "/") != "" && u.Path != redfishRoot {
		if system, err = checkPath(u.Path); err != nil {
			return nil, "", err
		}
	}
	w = &redfishWire{base: url.URL{Scheme: u.Scheme, Host: u.Host}, user: cfg.User, secret: cfg.Password}
	w.http = &http.Client{
		CheckRedirect: w.checkRedirect,
		Transport: &http.Transport{
			Proxy:                  nil, // a BMC's password is not sent through a proxy
			DialContext:            cfg.dialer().DialContext,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: cfg.Insecure},
			MaxResponseHeaderBytes: maxRedfishHeader,
			MaxConnsPerHost:        1,
		},
	}
	return w, system, nil
}

// dialer connects to addresses that the password may be sent to, whatever name they have.
func (c Config) dialer() *net.Dialer {
	return &net.Dialer{Control: func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		return c.check(to.Addr())
	}}
}

// checkRedirect follows a few redirects of reads within the service (a missing slash), and no others: another host
// would receive the session's token.
func (w *redfishWire) checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) > maxRedfishHops || via[0].Method != http.MethodGet ||
		req.URL.Scheme != w.base.Scheme || req.URL.Host != w.base.Host {
		return http.ErrUseLastResponse
	}
	_, err := checkPath(req.URL.Path)
	return err
}

// checkPath checks a link of the service: it must be a clean path within Redfish.
func checkPath(link string) (string, error) {
	u, err := url.Parse(link)
	if err != nil || len(link) > maxRedfishPathLen || u.IsAbs() || u.Host != "" || u.RawQuery != "" ||
		u.Fragment != "" ||
		!strings.HasPrefix(u.Path, "/redfish/") || path.Clean(u.Path) != strings.TrimSuffix(u.Path, "/") {
		return "", fmt.Errorf("%w: %.100q is not a path of a Redfish service", trivet.ErrInvalid, link)
	}
	return u.EscapedPath(), nil
}

// call sends one request and decodes the response into out, if not nil. A failure to send is ErrUnavailable for a
// read and ErrUnknown for a change; an error response is a *redfishError.
func (w *redfishWire) call(ctx context.Context, method, link, etag string, in, out any) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, redfishCall)
	defer cancel()
	req, err := w.request(ctx, method, link, etag, in)
	if err != nil {
		return answer{}, err
	}
	return w.send(req, link, out)
}

// query reads a resource with a query, which is the caller's: those in links are refused.
func (w *redfishWire) query(ctx context.Context, link, query string, out any) error {
	ctx, cancel := context.WithTimeout(ctx, redfishCall)
	defer cancel()
	req, err := w.request(ctx, http.MethodGet, link, "", nil)
	if err != nil {
		return err
	}
	req.URL.RawQuery = query
	_, err = w.send(req, link, out)
	return err
}

func (w *redfishWire) send(req *http.Request, link string, out any) (answer, error) {
	method := req.Method
	if err := ended(req.Context()); err != nil { // nothing is sent
		return answer{}, fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
	}
	resp, err := w.http.Do(req)
	if err != nil {
		return answer{}, sendError(method, link, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxRedfishBody+1))
	switch {
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return answer{}, fmt.Errorf("%s %s: %w", method, link, newRedfishError(method, resp.StatusCode, body))
	case err != nil && out != nil:
		return answer{}, sendError(method, link, err)
	case len(body) > maxRedfishBody:
		return answer{}, fmt.Errorf("%s %s: %w: the response has over %d bytes", method, link, trivet.ErrTooLarge,
			maxRedfishBody)
	}
	if out != nil {
		if err := json.Unmarshal(body, out); err != nil {
			return answer{}, fmt.Errorf("%s %s: %w: the response is not valid Redfish: %.200s",
				method, link, trivet.ErrInvalid, err.Error())
		}
	}
	return answer{
		etag:     resp.Header.Get("ETag"),
		token:    resp.Header.Get("X-Auth-Token"),
		location: w.location(resp.Header.Get("Location")),
	}, nil
}

func (w *redfishWire) request(ctx context.Context, method, link, etag string, in any) (*http.Request, error) {
	p, err := checkPath(link)
	if err != nil {
		return nil, err
	}
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, w.base.String()+p, body)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", trivet.ErrInvalid, err)
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("OData-Version", "4.0")
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if etag != "" {
		req.Header.Set("If-Match", etag)
	}
	if w.token != "" {
		req.Header.Set("X-Auth-Token", w.token)
	} else if w.basic {
		req.SetBasicAuth(w.user, w.secret)
	}
	return req, nil
}

// location returns the path of a session from a Location header, which may be a whole URL. It is empty for another
// host; then the session ends when it is idle.
func (w *redfishWire) location(header string) string {
	u, err := url.Parse(header)
	if err != nil || u.Host != "" && u.Host != w.base.Host {
		return ""
	}
	p, err := checkPath(u.EscapedPath())
	if err != nil {
		return ""
	}
	return p
}

func (w *redfishWire) close() { w.http.CloseIdleConnections() }

func sendError(method, link string, err error) error {
	kind := trivet.ErrUnavailable
	if method != http.MethodGet {
		kind = trivet.ErrUnknown
	}
	var cert *tls.CertificateVerificationError
	if errors.As(err, &cert) {
		return fmt.Errorf("%w: %w: %w", trivet.ErrUnavailable, errCertificate, cert.Err)
	}
	if errors.Is(err, errAddress) {
		return err
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // the others repeat method and URL
	}
	return fmt.Errorf("%s %s: %w: %w", method, link, kind, err)
}
