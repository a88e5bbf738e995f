package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"

	"github.com/trivet-project/trivet"
)

// Resolve decides about a provision that a recovery of the cluster has frozen: [trivet.ResolveContinue] or
// [trivet.ResolveCancel]. It fails with ErrConflict for one that is not frozen. If the response is lost it fails with
// ErrUnknown and does not retry.
func (c *Client) Resolve(ctx context.Context, project, provision, decision string) error {
	return c.resolve(ctx, project, provision, trivet.ResolveRequest{Decision: decision})
}

// ResolveInstalled states, after a recovery of the cluster, that a machine runs what a provision wanted: it serves that
// from now on, and is left as it is. machine and address may be empty: see [trivet.ResolveRequest]. It fails with
// ErrConflict where the machine is known to run something else, or another one serves the provision.
func (c *Client) ResolveInstalled(ctx context.Context, project, provision, machine string, address netip.Addr) error {
	return c.resolve(ctx, project, provision,
		trivet.ResolveRequest{Decision: trivet.ResolveInstalled, Machine: machine, Address: address})
}

func (c *Client) resolve(ctx context.Context, project, provision string, req trivet.ResolveRequest) error {
	err := errors.Join(trivet.ValidateProject(project), trivet.ValidateName(provision))
	if err != nil {
		return err
	}
	body, err := json.Marshal(req)
	if err != nil {
		return err
	}
	path := fmt.Sprintf("/v1/projects/%s/provisions/%s/resolve", url.PathEscape(project), url.PathEscape(provision))
	_, err = c.json(ctx, call{method: http.MethodPost, path: path, body: body, once: true}, nil)
	if errors.Is(err, trivet.ErrUnknown) {
		name := trivet.ShortName(trivet.FullName(project, provision))
		return &trivet.Error{Op: "resolve", Kind: "Provision", Name: name, Err: err,
			Hint: "see what became of it: trivet why " + name}
	}
	return err
}
