package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"

	"github.com/trivet-project/trivet"
)

// Pause pauses a provision: it claims no machine, and its run starts no further action. One that is paused stays so. If
// the response is lost it fails with ErrUnknown and does not retry: another client may have resumed it since.
func (c *Client) Pause(ctx context.Context, project, provision string) error {
	return c.provisionVerb(ctx, project, provision, "pause", nil)
}

// Resume resumes a provision that is paused. If the response is lost it fails with ErrUnknown and does not retry.
func (c *Client) Resume(ctx context.Context, project, provision string) error {
	return c.provisionVerb(ctx, project, provision, "resume", nil)
}

// Retry gives a provision that failed another run. If the response is lost it fails with ErrUnknown and does not
// retry: that run may have failed since.
func (c *Client) Retry(ctx context.Context, project, provision string, req trivet.RetryRequest) error {
	return c.provisionRequest(ctx, project, provision, "retry", req)
}

// Replace replaces the machine of a provision by another one. If the response is lost it fails with ErrUnknown and does
// not retry: the next machine may serve it since.
func (c *Client) Replace(ctx context.Context, project, provision string, req trivet.ReplaceRequest) error {
	return c.provisionRequest(ctx, project, provision, "replace", req)
}

// Redeploy installs the machine of a provision again. If the response is lost it fails with ErrUnknown and does not
// retry: the machine may be installed again since.
func (c *Client) Redeploy(ctx context.Context, project, provision string, req trivet.RedeployRequest) error {
	return c.provisionRequest(ctx, project, provision, "redeploy", req)
}

// PlanRedeploy returns what Redeploy would do. Nothing is changed.
func (c *Client) PlanRedeploy(ctx context.Context, project, provision string) (*trivet.RedeployPlan, error) {
	path, err := provisionPath(project, provision, "redeploy/plan")
	if err != nil {
		return nil, err
	}
	var out trivet.RedeployPlan
	_, err = c.json(ctx, call{method: http.MethodPost, path: path}, &out)
	return &out, err
}

func provisionPath(project, name, verb string) (string, error) {
	err := errors.Join(trivet.ValidateProject(project), trivet.ValidateName(name))
	return "/v1/projects/" + url.PathEscape(project) + "/provisions/" + url.PathEscape(name) + "/" + verb, err
}

func (c *Client) provisionRequest(ctx context.Context, project, name, verb string, req any) error {
	body, err := json.Marshal(req)
	if err != nil {
		return err
	}
	return c.provisionVerb(ctx, project, name, verb, body)
}

func (c *Client) provisionVerb(ctx context.Context, project, name, verb string, body []byte) error {
	path, err := provisionPath(project, name, verb)
	if err != nil {
		return err
	}
	_, err = c.json(ctx, call{method: http.MethodPost, path: path, body: body, once: true}, nil)
	if errors.Is(err, trivet.ErrUnknown) {
		return &trivet.Error{Op: verb, Kind: "Provision", Name: name, Err: err,
			Hint: "check its state, and repeat the command if needed: trivet describe provision " + name}
	}
	return err
}

// Queue returns the places of all provisions that wait, and are not paused, by age.
func (c *Client) Queue(ctx context.Context) (q trivet.Queue, err error) {
	_, err = c.json(ctx, call{method: http.MethodGet, path: "/v1/provisions/queue"}, &q)
	return q, err
}

// QueuePlace returns the place of one provision among those that wait for the same; nil where it does not wait.
func (c *Client) QueuePlace(ctx context.Context, project, provision string) (*trivet.QueuePlace, error) {
	query := url.Values{"project": {project}, "name": {provision}}
	var q trivet.Queue
	_, err := c.json(ctx, call{method: http.MethodGet, path: "/v1/provisions/queue", query: query}, &q)
	if err != nil || len(q.Items) == 0 {
		return nil, err
	}
	return &q.Items[0], nil
}

// Render returns the run that a provision would start on the machine that it names. Nothing is stored or started.
func (c *Client) Render(ctx context.Context, project string, req trivet.RenderRequest) (*trivet.Rendered, error) {
	if err := trivet.ValidateProject(project); err != nil {
		return nil, err
	}
	body, err := json.Marshal(req)
	if err != nil {
		return nil, err
	}
	var out trivet.Rendered
	path := "/v1/projects/" + url.PathEscape(project) + "/provisions/render"
	_, err = c.json(ctx, call{method: http.MethodPost, path: path, body: body}, &out)
	return &out, err
}
