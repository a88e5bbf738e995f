package client

import (
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
)

// DefaultPatience is how long a call goes on trying while no head can serve it.
const DefaultPatience = 15 * time.Second

// Bounds of one try. A head whose cable was cut sends no reset, so silence must count.
const (
	dialTimeout  = 3 * time.Second
	tryTimeout   = 10 * time.Second
	pingAfter    = 10 * time.Second
	pingTimeout  = 5 * time.Second
	watchSilence = 30 * time.Second
)

// Config says which cluster to speak to, and as whom.
type Config struct {
	// Endpoints are the URLs of heads, "https://10.0.0.5:7480"; one is enough, all are better.
	Endpoints []string
	// Trust is the pin of the cluster's CA ("sha256:...") or a CA's certificate in PEM. See auth.ClientTLS.
	Trust string
	// Token is the account's API token; agents have none.
	Token string
	// Patience bounds how long a call goes on trying; 0 means DefaultPatience, below 0 each head once.
	Patience time.Duration
	// UserAgent names the program in the heads' logs.
	UserAgent string
}

// Client speaks to a cluster. It is safe for concurrent use.
type Client struct {
	heads    *heads
	http     *http.Client
	token    string
	agent    string
	patience time.Duration
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
	tlsConfig, err := auth.ClientTLS(cfg.Trust)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: dialTimeout, KeepAlive: pingAfter}).DialContext,
		TLSClientConfig:       tlsConfig,
		TLSHandshakeTimeout:   dialTimeout,
		ForceAttemptHTTP2:     true,
		HTTP2:                 &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		MaxIdleConnsPerHost:   4,
		IdleConnTimeout:       90 * time.Second,
		ExpectContinueTimeout: time.Second,
	}
	c := &Client{heads: newHeads(urls), token: cfg.Token, agent: cfg.UserAgent, patience: cfg.Patience}
	// A redirect would carry the token to wherever it points.
	c.http = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	if c.patience == 0 {
		c.patience = DefaultPatience
	}
	return c, nil
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Endpoints gives the heads as they are known now.
func (c *Client) Endpoints() []string { return c.heads.all() }

// Learn takes the cluster's own list of its heads. The configured endpoints stay as the last resort, and an empty or
// unreadable list changes nothing: a client never forgets the last heads it knew.
func (c *Client) Learn(endpoints []string) {
	if urls, err := parseEndpoints(endpoints); err == nil {
		c.heads.learn(urls)
	}
}
