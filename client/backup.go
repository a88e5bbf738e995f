package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/trivet-project/trivet"
)

// prepareBackup is how long a head may take before it sends a backup: it copies its store first.
const prepareBackup = 10 * time.Minute

// Backup begins a backup of the cluster and returns its file, which must be closed. contents says that the caller
// saves the contents of the blobs, too. The account must be an admin's.
func (c *Client) Backup(ctx context.Context, contents bool) (io.ReadCloser, error) {
	body, err := json.Marshal(trivet.BackupRequest{Contents: contents})
	if err != nil {
		return nil, err
	}
	resp, _, err := c.send(ctx, call{method: http.MethodPost, path: "/v1/sites/" + trivet.SiteName + "/backup",
		body: body, timeout: -1, prepare: prepareBackup})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Blob returns the content of a blob, from any head that has it. It must be closed, and compared with the digest.
func (c *Client) Blob(ctx context.Context, digest string) (io.ReadCloser, error) {
	resp, _, err := c.send(ctx, call{method: http.MethodGet, path: "/v1/blobs/" + url.PathEscape(digest), timeout: -1})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}
