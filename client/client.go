package client

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
)

// DefaultRetryTimeout is how long a call is retried while no head can serve it.
const DefaultRetryTimeout = 15 * time.Second

// failFastTimeout is how long a client that fails fast retries at heads that respond: longer than an election takes.
const failFastTimeout = 4 * time.Second

// Bounds of one attempt. A head whose cable was cut sends no reset, so each wait needs a timeout. While another head
// may serve a call, this one has less time to begin its response: for a write, somewhat more than a healthy head needs
// to fail it.
const (
	dialTimeout          = 2 * time.Second
	tlsTimeout           = 3 * time.Second
	probeTimeout         = 3 * time.Second
	probeAfter           = time.Second // of waiting for a response: see probeStopped
	workingProbeTimeout  = time.Second // for a head at work to respond to that probe
	tryTimeout           = 10 * time.Second
	readResponseTimeout  = 3 * time.Second
	writeResponseTimeout = 6 * time.Second
	pingAfter            = 10 * time.Second
	pingTimeout          = 5 * time.Second
	probeInterval        = 2 * time.Second  // of TCP, after pingAfter
	probes               = 3                // that are not acknowledged
	watchSilence         = 12 * time.Second // two heartbeats of a watch and a little
)

// Config selects the cluster and the account.
type Config struct {
	// Endpoints are the URLs of heads, "https://10.0.0.5:7480", or of a balancer; one is enough, all are better. They
	// are tried in this order, and before the heads that the client learns from responses: those may not be reachable
	// from here, so they are used once they have responded to a probe, or when no endpoint responds.
	Endpoints []string
	// Trust is the pins of the cluster's CAs ("sha256:...", separated by commas) or CAs' certificates in PEM. See
	// client.TLSConfig.
	Trust string
	// OnTrust is called, one call at a time, with the new pins when a response says that the cluster's CAs were
	// changed, so that a program can store them. The client uses them from then on. Optional.
	OnTrust func(trust string)
	// Token is the account's API token; agents have none.
	Token string
	// RetryTimeout bounds how long a call is retried; 0 means DefaultRetryTimeout, below 0 each head is tried once.
	RetryTimeout time.Duration
	// FailFast is for interactive programs. A call fails at once, with the cause of each head, if none can be reached
	// and nothing is in doubt, and after a few seconds if heads respond that they cannot serve it. Otherwise it is
	// retried until RetryTimeout.
	FailFast bool
	// Fresh makes the first call read everything that was acknowledged before it to any client: for programs that run
	// one after the other, and balancers. If no head can verify that, the response may be stale; see [Client.Stale].
	// Later calls always read at least what this client has read or written.
	Fresh bool
	// UserAgent names the program in the heads' logs.
	UserAgent string
}

// Client is a client of one cluster. It is safe for concurrent use. If a head fails, another one is used at once, and
// the failed head is probed until it is back (see [Client.Health]), so a client must be closed.
type Client struct {
	heads        *heads
	session      *session
	http         *http.Client
	agents       *http.Client // of the agent API
	token        string
	agent        string
	retryTimeout time.Duration
	failFast     bool

	pinned *pinned // nil: the trust is certificates in PEM
}

// New returns a client. It does not connect.
func New(cfg Config) (*Client, error) {
	urls, err := parseEndpoints(cfg.Endpoints)
	if err != nil {
		return nil, err
	}
	if cfg.Trust == "" {
		return nil, fmt.Errorf("client: %w: no pin or certificate of the cluster's CA", trivet.ErrInvalid)
	}
	tlsConfig, pins, err := newTLS(cfg.Trust)
	if err != nil {
		return nil, err
	}
	c := &Client{
		pinned: pins,
		heads:  newHeads(urls, newProbe(tlsConfig)), session: &session{},
		token: cfg.Token, agent: cfg.UserAgent, retryTimeout: cfg.RetryTimeout, failFast: cfg.FailFast,
	}
	if pins != nil {
		pins.onChange = cfg.OnTrust
	}
	c.session.fresh.Store(cfg.Fresh)
	c.http, c.agents = newHTTP(newTransport(tlsConfig)), newHTTP(newAgentTransport(tlsConfig))
	if c.retryTimeout == 0 {
		c.retryTimeout = DefaultRetryTimeout
	}
	return c, nil
}

func newHTTP(t *http.Transport) *http.Client {
	// A redirect would send the token to another server.
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
}

func newTransport(tlsConfig *tls.Config) *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: dialTimeout, KeepAlive: pingAfter}).DialContext,
		TLSClientConfig:       tlsConfig,
		TLSHandshakeTimeout:   tlsTimeout,
		ForceAttemptHTTP2:     true,
		HTTP2:                 &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		MaxIdleConnsPerHost:   4,
		IdleConnTimeout:       90 * time.Second,
		ExpectContinueTimeout: time.Second,
	}
}

// newAgentTransport is for an agent, which sends one request at a time: over HTTP/1.1, with which a request costs a
// head less than with HTTP/2. The kernel sends the probes of the connection.
func newAgentTransport(tlsConfig *tls.Config) *http.Transport {
	t := newTransport(tlsConfig)
	t.TLSClientConfig = tlsConfig.Clone()
	t.TLSClientConfig.NextProtos = []string{"http/1.1"}
	t.ForceAttemptHTTP2, t.HTTP2 = false, nil
	t.MaxIdleConnsPerHost = 2 // another one for logs
	t.DialContext = (&net.Dialer{Timeout: dialTimeout, KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: pingAfter, Interval: probeInterval, Count: probes,
	}}).DialContext
	return t
}

// Close stops the monitors of failed heads and closes idle connections. The client must not be used afterwards.
func (c *Client) Close() {
	c.heads.close()
	c.http.CloseIdleConnections()
	c.agents.CloseIdleConnections()
}

// Endpoints returns the known URLs of heads: those of the configuration, then those that were learned.
func (c *Client) Endpoints() []string { return c.heads.all() }

// Learn sets the cluster's list of its heads, as every response carries it, so that a program that stored one need not
// wait for the first response. The configured endpoints stay, and an empty or invalid list changes nothing: a client
// always keeps the last heads that it knew.
func (c *Client) Learn(endpoints []string) { c.heads.learn(strings.Join(endpoints, ",")) }

// Stale reports whether the last response may be older than what was acknowledged before it, since its head could not
// reach the others.
func (c *Client) Stale() bool { return c.session.stale.Load() }
