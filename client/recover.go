package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/trivet-project/trivet"
)

// Resolve decides about a provision that a recovery of the cluster has frozen: [trivet.ResolveContinue] or
// [trivet.ResolveCancel]. It fails with ErrConflict for one that is not frozen. If the response is lost it fails with
// ErrUnknown and does not retry.
func (c *Client) Resolve(ctx context.Context, project, provision, decision string) error {
	err := errors.Join(trivet.ValidateProject(project), trivet.ValidateName(provision))
	if err != nil {
		return err
	}
	body, err := json.Marshal(trivet.ResolveRequest{Decision: decision})
	if err != nil {
		return err
	}
	path := fmt.Sprintf("/v1/projects/%s/provisions/%s/resolve", url.PathEscape(project), url.PathEscape(provision))
	_, err = c.json(ctx, call{method: http.MethodPost, path: path, body: body, once: true}, nil)
	if errors.Is(err, trivet.ErrUnknown) {
		name := trivet.ShortName(trivet.FullName(project, provision))
		return &trivet.Error{Op: "resolve", Kind: "Provision", Name: name, Err: err,
			Hint: "check whether it is still frozen: trivet recover list"}
	}
	return err
}
