package client

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
)

// DefaultRetryTimeout is how long a call goes on trying while no head can serve it.
const DefaultRetryTimeout = 15 * time.Second

// failFastTimeout is the patience of a client that fails fast with heads that answer: longer than they take to find a
// leader.
const failFastTimeout = 4 * time.Second

// Bounds of one try. A head whose cable was cut sends no reset, so silence must count. While another head may serve a
// call, this one has less time to begin its answer: a write somewhat longer than a head that lives needs to give it
// up.
const (
	dialTimeout  = 2 * time.Second
	shakeTimeout = 3 * time.Second
	probeTimeout = 3 * time.Second
	tryTimeout   = 10 * time.Second
	readAnswer   = 3 * time.Second
	writeAnswer  = 6 * time.Second
	pingAfter    = 10 * time.Second
	pingTimeout  = 5 * time.Second
	watchSilence = 12 * time.Second // two beats of a feed and a little
)

// Config says which cluster to speak to, and as whom.
type Config struct {
	// Endpoints are the URLs of heads, "https://10.0.0.5:7480", or of a balancer; one is enough, all are better. They
	// are asked in this order, and before the heads that the client learns from the cluster's answers: these may not be
	// reachable from here, so they are used once they have answered a probe, or when no endpoint answers any more.
	Endpoints []string
	// Trust is the pin of the cluster's CA ("sha256:...") or a CA's certificate in PEM. See client.TLSConfig.
	Trust string
	// Token is the account's API token; agents have none.
	Token string
	// RetryTimeout bounds how long a call goes on trying; 0 means DefaultPatience, below 0 each head once.
	RetryTimeout time.Duration
	// FailFast ends a call at once, with the cause of each head, where none can be reached and nothing is in doubt, and
	// after a few seconds where heads answer that they cannot serve it: for people, who wait. Otherwise the call's
	// patience is spent on that, too.
	FailFast bool
	// Fresh makes the first call see all that was acknowledged before it, by whomever: for programs that run one after
	// the other, and balancers. Where no head can tell, the answer may be old nevertheless; see [Client.Stale]. Later
	// calls see all that this client has seen, always.
	Fresh bool
	// UserAgent names the program in the heads' logs.
	UserAgent string
}

// Client speaks to a cluster. It is safe for concurrent use. A head that fails is replaced at once and looked after
// until it is back (see [Client.Health]), so a client is to be closed.
type Client struct {
	heads        *heads
	session      *session
	http         *http.Client
	token        string
	agent        string
	retryTimeout time.Duration
	failFast     bool
}

// New makes a client. It does not connect.
func New(cfg Config) (*Client, error) {
	urls, err := parseEndpoints(cfg.Endpoints)
	if err != nil {
		return nil, err
	}
	if cfg.Trust == "" {
		return nil, fmt.Errorf("client: %w: no pin or certificate of the cluster's CA", trivet.ErrInvalid)
	}
	tlsConfig, err := TLSConfig(cfg.Trust)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: dialTimeout, KeepAlive: pingAfter}).DialContext,
		TLSClientConfig:       tlsConfig,
		TLSHandshakeTimeout:   shakeTimeout,
		ForceAttemptHTTP2:     true,
		HTTP2:                 &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		MaxIdleConnsPerHost:   4,
		IdleConnTimeout:       90 * time.Second,
		ExpectContinueTimeout: time.Second,
	}
	c := &Client{
		heads: newHeads(urls, newProbe(tlsConfig)), session: &session{},
		token: cfg.Token, agent: cfg.UserAgent, retryTimeout: cfg.RetryTimeout, failFast: cfg.FailFast,
	}
	c.session.fresh.Store(cfg.Fresh)
	// A redirect would carry the token to wherever it points.
	c.http = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	if c.retryTimeout == 0 {
		c.retryTimeout = DefaultRetryTimeout
	}
	return c, nil
}

// Close ends what looks after heads that have failed, and drops idle connections. No call must follow.
func (c *Client) Close() {
	c.heads.close()
	c.http.CloseIdleConnections()
}

// Endpoints gives the URLs of heads as they are known now: those of the configuration, then those that were learned.
func (c *Client) Endpoints() []string { return c.heads.all() }

// Learn takes the cluster's own list of its heads, as every answer carries it: a program that kept one need not wait
// for the first. The configured endpoints stay, and an empty or unreadable list changes nothing: a client never
// forgets the last heads it knew.
func (c *Client) Learn(endpoints []string) { c.heads.learn(strings.Join(endpoints, ",")) }

// Stale says that the last answer may be older than what was acknowledged before it, since its head could not ask the
// others.
func (c *Client) Stale() bool { return c.session.stale.Load() }
