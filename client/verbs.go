package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/trivet-project/trivet"
)

// Whoami says who this client's token belongs to.
func (c *Client) Whoami(ctx context.Context) (w trivet.Whoami, err error) {
	_, err = c.json(ctx, call{method: http.MethodGet, path: "/v1/whoami"}, &w)
	return w, err
}

// Version says what the head runs that answers first.
func (c *Client) Version(ctx context.Context) (v trivet.Version, err error) {
	_, err = c.json(ctx, call{method: http.MethodGet, path: "/v1/version"}, &v)
	return v, err
}

// IssueToken makes an API token of an account; zero expires means never. It is shown this once. Where the answer is lost
// it fails with ErrUnknown; the token that may have been made is of no use to anybody.
func (c *Client) IssueToken(ctx context.Context, account string, expires time.Time) (token string, err error) {
	body, err := json.Marshal(trivet.TokenRequest{Account: account, Expires: expires})
	if err != nil {
		return "", err
	}
	var issued trivet.TokenResponse
	_, err = c.json(ctx, call{method: http.MethodPost, path: "/v1/tokens/issue", body: body, once: true}, &issued)
	return issued.Token, err
}

// Accept makes a discovered or quarantined machine available. Where the answer is lost it fails with ErrUnknown, and does not
// say it again: somebody else may have quarantined the machine since.
func (c *Client) Accept(ctx context.Context, machine string) error {
	return c.machineVerb(ctx, machine, "accept", nil)
}

// Quarantine keeps a machine out of placement, for a reason. A run on it is cancelled. Where the answer is lost it
// fails with ErrUnknown, and does not say it again: somebody else may have accepted the machine since, and it have a new run.
func (c *Client) Quarantine(ctx context.Context, machine, reason string) error {
	body, err := json.Marshal(trivet.QuarantineRequest{Reason: reason})
	if err != nil {
		return err
	}
	return c.machineVerb(ctx, machine, "quarantine", body)
}

func (c *Client) machineVerb(ctx context.Context, machine, verb string, body []byte) error {
	if err := trivet.ValidateName(machine); err != nil {
		return err
	}
	path := fmt.Sprintf("/v1/machines/%s/%s", url.PathEscape(machine), verb)
	_, err := c.json(ctx, call{method: http.MethodPost, path: path, body: body, once: true}, nil)
	if errors.Is(err, trivet.ErrUnknown) {
		return &trivet.Error{Op: verb, Kind: "Machine", Name: machine, Err: err,
			Hint: "see what it is now, and say it again where it needs that: trivet describe machine " + machine}
	}
	return err
}

// Progress says how far the running action of a machine was when its agent last told; nil when it told nothing.
func (c *Client) Progress(ctx context.Context, machine string) (p *trivet.Progress, err error) {
	if err := trivet.ValidateName(machine); err != nil {
		return nil, err
	}
	_, err = c.json(ctx, call{method: http.MethodGet, path: "/v1/machines/" + url.PathEscape(machine) + "/progress"}, &p)
	return p, err
}

// IssueJoin asks for a token that lets one head join the cluster in a role, "voter" or "witness"; 0 means the life that the
// cluster chooses. It is shown this once.
func (c *Client) IssueJoin(ctx context.Context, role string, life time.Duration) (token string, expires time.Time, err error) {
	return c.issueJoin(ctx, trivet.JoinTokenRequest{Role: role, Lifetime: trivet.Duration(life)})
}

// IssueReplace is IssueJoin for a head that joins in place of another one, which is then removed, and in its role.
func (c *Client) IssueReplace(ctx context.Context, old string, life time.Duration) (token string, expires time.Time, err error) {
	return c.issueJoin(ctx, trivet.JoinTokenRequest{Replace: old, Lifetime: trivet.Duration(life)})
}

func (c *Client) issueJoin(ctx context.Context, ask trivet.JoinTokenRequest) (token string, expires time.Time, err error) {
	body, err := json.Marshal(ask)
	if err != nil {
		return "", time.Time{}, err
	}
	var issued trivet.JoinTokenResponse
	_, err = c.json(ctx, call{method: http.MethodPost, path: "/v1/heads/token", body: body, once: true}, &issued)
	return issued.Token, issued.Expires, err
}

// Cluster says what the head that answers first sees of the heads.
func (c *Client) Cluster(ctx context.Context) (v trivet.Cluster, err error) {
	_, err = c.json(ctx, call{method: http.MethodGet, path: "/v1/cluster"}, &v)
	return v, err
}

// RemoveHead begins to take a head out of the cluster for good; its record says when it is out.
func (c *Client) RemoveHead(ctx context.Context, head string) error {
	if err := trivet.ValidateName(head); err != nil {
		return err
	}
	_, err := c.json(ctx, call{method: http.MethodPost, path: "/v1/heads/" + url.PathEscape(head) + "/remove"}, nil)
	return err
}
