package client

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/trivet-project/trivet"
)

// statusTimeout bounds the request for the state of the site: the head asks all others, which probe first.
// statusBegin is how long one of several heads may take.
const (
	statusTimeout = 20 * time.Second
	statusBegin   = 12 * time.Second
)

// Status returns the state of the site as the first head that responds collects it.
func (c *Client) Status(ctx context.Context) (s trivet.StatusReport, err error) {
	_, err = c.json(ctx, call{method: http.MethodGet, path: "/v1/status", timeout: statusTimeout,
		begin: statusBegin}, &s)
	return s, err
}

// ReportBackup records that a backup was created, or proven to be restorable. The account must be an admin's.
func (c *Client) ReportBackup(ctx context.Context, report trivet.BackupReport) error {
	body, err := json.Marshal(report)
	if err != nil {
		return err
	}
	path := "/v1/sites/" + trivet.SiteName + "/backups"
	_, err = c.json(ctx, call{method: http.MethodPost, path: path, body: body}, nil)
	return err
}
