package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/trivet-project/trivet"
)

// Whoami returns the account of this client's token.
func (c *Client) Whoami(ctx context.Context) (w trivet.Whoami, err error) {
	_, err = c.json(ctx, call{method: http.MethodGet, path: "/v1/whoami"}, &w)
	return w, err
}

// Version returns the version of the first head that responds.
func (c *Client) Version(ctx context.Context) (v trivet.Version, err error) {
	_, err = c.json(ctx, call{method: http.MethodGet, path: "/v1/version"}, &v)
	return v, err
}

// BootCA returns the CA of the boot servers, for the firmware of machines.
func (c *Client) BootCA(ctx context.Context) (ca trivet.BootCA, err error) {
	_, err = c.json(ctx, call{method: http.MethodGet, path: "/v1/boot-ca"}, &ca)
	return ca, err
}

// CA returns the CAs of the heads, for programs that verify them by certificate and not by pin.
func (c *Client) CA(ctx context.Context) (ca trivet.CA, err error) {
	_, err = c.json(ctx, call{method: http.MethodGet, path: "/v1/ca"}, &ca)
	return ca, err
}

// IssueToken creates an API token of an account. It is returned only once. If the response is lost it fails with
// ErrUnknown; a token that was created nevertheless is of no use.
func (c *Client) IssueToken(ctx context.Context, req trivet.TokenRequest) (issued trivet.TokenResponse, err error) {
	body, err := json.Marshal(req)
	if err != nil {
		return issued, err
	}
	_, err = c.json(ctx, call{method: http.MethodPost, path: "/v1/tokens/issue", body: body, once: true}, &issued)
	return issued, err
}

// Accept makes a discovered or quarantined machine available. If the response is lost it fails with ErrUnknown and
// does not retry: another client may have quarantined the machine since.
func (c *Client) Accept(ctx context.Context, machine string) error {
	return c.machineVerb(ctx, machine, "accept", nil)
}

// Forget resets the reputation of a machine, as after a repair.
func (c *Client) Forget(ctx context.Context, machine string) error {
	return c.machineVerb(ctx, machine, "forget", nil)
}

// Models returns what was learnt of the machines of each model, as the head that responds knows it, all machines first.
func (c *Client) Models(ctx context.Context) (all []trivet.Model, err error) {
	_, err = c.json(ctx, call{method: http.MethodGet, path: "/v1/models"}, &all)
	return all, err
}

// Quarantine excludes a machine from placement, for a reason. A run on it is cancelled. If the response is lost it
// fails with ErrUnknown and does not retry: the machine may have been accepted since, and have a new run.
func (c *Client) Quarantine(ctx context.Context, machine, reason string) error {
	body, err := json.Marshal(trivet.QuarantineRequest{Reason: reason})
	if err != nil {
		return err
	}
	return c.machineVerb(ctx, machine, "quarantine", body)
}

// Release stops a machine by a run that wipes its disks, or keeps them, and deletes the provision that it serves. It
// returns when the run has begun: the machine's status has its name. If the response is lost it fails with ErrUnknown
// and does not retry: another client may have claimed the machine since.
func (c *Client) Release(ctx context.Context, machine string, req trivet.ReleaseRequest) error {
	body, err := json.Marshal(req)
	if err != nil {
		return err
	}
	return c.machineVerb(ctx, machine, "release", body)
}

// Rename gives a machine another name. It may be repeated: the machine with the UID of the request, and no later one of
// its name, is renamed once.
func (c *Client) Rename(ctx context.Context, machine string, req trivet.RenameRequest) error {
	if err := errors.Join(trivet.ValidateName(machine), req.Validate()); err != nil {
		return err
	}
	body, err := json.Marshal(req)
	if err != nil {
		return err
	}
	path := fmt.Sprintf("/v1/machines/%s/rename", url.PathEscape(machine))
	_, err = c.json(ctx, call{method: http.MethodPost, path: path, body: body}, nil)
	return err
}

// RequestPower requests a power state of a machine from its BMC, which a head sets later: the machine's status has the
// request until then. If the response is lost it fails with ErrUnknown and does not retry: a machine would be cycled
// twice.
func (c *Client) RequestPower(ctx context.Context, machine string, req trivet.PowerRequest) error {
	body, err := json.Marshal(req)
	if err != nil {
		return err
	}
	return c.machineVerb(ctx, machine, "power", body)
}

// Power asks the BMC of a machine for its power state.
func (c *Client) Power(ctx context.Context, machine string) (state trivet.PowerState, err error) {
	if err := trivet.ValidateName(machine); err != nil {
		return state, err
	}
	path := "/v1/machines/" + url.PathEscape(machine) + "/power"
	_, err = c.json(ctx, call{method: http.MethodGet, path: path}, &state)
	return state, err
}

func (c *Client) machineVerb(ctx context.Context, machine, verb string, body []byte) error {
	if err := trivet.ValidateName(machine); err != nil {
		return err
	}
	path := fmt.Sprintf("/v1/machines/%s/%s", url.PathEscape(machine), verb)
	_, err := c.json(ctx, call{method: http.MethodPost, path: path, body: body, once: true}, nil)
	if errors.Is(err, trivet.ErrUnknown) {
		return &trivet.Error{Op: verb, Kind: "Machine", Name: machine, Err: err,
			Hint: "check its state, and repeat the command if needed: trivet describe machine " + machine}
	}
	return err
}

// Progress returns the last reported progress of a machine's running action; nil if none was reported.
func (c *Client) Progress(ctx context.Context, machine string) (p *trivet.Progress, err error) {
	if err := trivet.ValidateName(machine); err != nil {
		return nil, err
	}
	path := "/v1/machines/" + url.PathEscape(machine) + "/progress"
	_, err = c.json(ctx, call{method: http.MethodGet, path: path}, &p)
	return p, err
}

// IssueJoin creates a token that lets one head join the cluster in a role: "voter", "standby" or "witness". 0 means the
// default lifetime of the cluster. It is returned only once.
func (c *Client) IssueJoin(
	ctx context.Context, role string, life time.Duration,
) (token string, expires time.Time, err error) {
	return c.issueJoin(ctx, trivet.JoinTokenRequest{Role: role, Lifetime: trivet.Duration(life)})
}

// IssueReplace is IssueJoin for a head that replaces another one, which is then removed, in its role.
func (c *Client) IssueReplace(
	ctx context.Context, old string, life time.Duration,
) (token string, expires time.Time, err error) {
	return c.issueJoin(ctx, trivet.JoinTokenRequest{Replace: old, Lifetime: trivet.Duration(life)})
}

func (c *Client) issueJoin(
	ctx context.Context, req trivet.JoinTokenRequest,
) (token string, expires time.Time, err error) {
	body, err := json.Marshal(req)
	if err != nil {
		return "", time.Time{}, err
	}
	var issued trivet.JoinTokenResponse
	_, err = c.json(ctx, call{method: http.MethodPost, path: "/v1/heads/token", body: body, once: true}, &issued)
	return issued.Token, issued.Expires, err
}

// AuditOptions select entries of the audit log.
type AuditOptions struct {
	Account string    // by this account
	Kind    string    // about records of this kind, by any of its names
	Project string    // about records of this project
	Name    string    // about the record of this name
	Since   time.Time // not before this time; zero: from the beginning
	Limit   int       // entries a page; 0: the head's default
	// Continue is that of the last page; empty begins with the newest entry.
	Continue string
}

// Audit returns a page of the audit log, the newest entry first. The account must be an admin's.
func (c *Client) Audit(ctx context.Context, o AuditOptions) (page trivet.AuditList, err error) {
	q := url.Values{}
	for key, value := range map[string]string{
		"account": o.Account, "kind": o.Kind, "project": o.Project, "name": o.Name, "continue": o.Continue,
	} {
		if value != "" {
			q.Set(key, value)
		}
	}
	if !o.Since.IsZero() {
		q.Set("since", o.Since.UTC().Format(time.RFC3339))
	}
	if o.Limit > 0 {
		q.Set("limit", strconv.Itoa(o.Limit))
	}
	_, err = c.json(ctx, call{method: http.MethodGet, path: "/v1/audit", query: q}, &page)
	return page, err
}

// Cluster returns the state of the control plane as the first head that responds sees it.
func (c *Client) Cluster(ctx context.Context) (v trivet.Cluster, err error) {
	_, err = c.json(ctx, call{method: http.MethodGet, path: "/v1/cluster"}, &v)
	return v, err
}

// RotateKey requests the rotation of a key of the cluster, and returns its record, which shows the progress. While a
// rotation is in progress, that is the one.
func (c *Client) RotateKey(ctx context.Context, name string, req trivet.RotateRequest) (*trivet.Key, error) {
	if err := trivet.ValidateName(name); err != nil {
		return nil, err
	}
	key := new(trivet.Key)
	body, err := json.Marshal(req)
	if err != nil {
		return nil, err
	}
	path := "/v1/keys/" + url.PathEscape(name) + "/rotate"
	_, err = c.json(ctx, call{method: http.MethodPost, path: path, body: body}, key)
	return key, err
}

// DropFormerBootCAs makes heads send no certificates of former boot CAs any more, and returns the record of the key.
func (c *Client) DropFormerBootCAs(ctx context.Context) (*trivet.Key, error) {
	key := new(trivet.Key)
	path := "/v1/keys/" + trivet.BootCAKey + "/drop-former"
	_, err := c.json(ctx, call{method: http.MethodPost, path: path}, key)
	return key, err
}

// Upgrade requests that the program of all heads is replaced, one after the other, and returns the record, which shows
// the progress. Its programs were uploaded before: see [Client.PutBlob].
func (c *Client) Upgrade(ctx context.Context, spec trivet.UpgradeSpec) (*trivet.Upgrade, error) {
	body, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	return c.upgrade(ctx, "run", body)
}

// PauseUpgrade lets no further head start again with the new program, or lets the upgrade go on.
func (c *Client) PauseUpgrade(ctx context.Context, pause bool) (*trivet.Upgrade, error) {
	if !pause {
		return c.upgrade(ctx, "resume", nil)
	}
	return c.upgrade(ctx, "pause", nil)
}

// RollbackUpgrade lets the heads go back to their former program.
func (c *Client) RollbackUpgrade(ctx context.Context) (*trivet.Upgrade, error) {
	return c.upgrade(ctx, "rollback", nil)
}

func (c *Client) upgrade(ctx context.Context, verb string, body []byte) (*trivet.Upgrade, error) {
	u := new(trivet.Upgrade)
	path := "/v1/upgrades/" + trivet.UpgradeName + "/" + verb
	_, err := c.json(ctx, call{method: http.MethodPost, path: path, body: body}, u)
	return u, err
}

// SetHead replaces what people set of a head, and returns its record.
func (c *Client) SetHead(ctx context.Context, head string, s trivet.HeadSettings) (h *trivet.Head, err error) {
	if err := trivet.ValidateName(head); err != nil {
		return nil, err
	}
	body, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	h = &trivet.Head{}
	path := "/v1/heads/" + url.PathEscape(head) + "/settings"
	_, err = c.json(ctx, call{method: http.MethodPut, path: path, body: body}, h)
	return h, err
}

// RemoveHead starts the removal of a head from the cluster; its record shows when it is complete.
func (c *Client) RemoveHead(ctx context.Context, head string) error {
	if err := trivet.ValidateName(head); err != nil {
		return err
	}
	_, err := c.json(ctx, call{method: http.MethodPost, path: "/v1/heads/" + url.PathEscape(head) + "/remove"}, nil)
	return err
}

// TestNotifier makes a head send a test event to the receiver of a notifier, and returns the outcome.
func (c *Client) TestNotifier(ctx context.Context, name string) (outcome trivet.NotifierTest, err error) {
	if err := trivet.ValidateName(name); err != nil {
		return outcome, err
	}
	path := "/v1/notifiers/" + url.PathEscape(name) + "/test"
	_, err = c.json(ctx, call{method: http.MethodPost, path: path}, &outcome)
	return outcome, err
}
