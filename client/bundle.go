package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"

	"github.com/trivet-project/trivet"
)

// RawFirst reads at most max records that match the options, as the head sends them, and reports whether there are
// more.
func (k Kind) RawFirst(ctx context.Context, o ListOptions, max int) (raw []json.RawMessage, more bool, err error) {
	q := selection(o.Labels, o.Fields)
	for {
		q.Set("limit", strconv.Itoa(min(max-len(raw), bundlePage)))
		var page trivet.List
		if _, err := k.c.json(ctx, call{method: http.MethodGet, path: k.path(""), query: q}, &page); err != nil {
			return raw, false, err
		}
		raw = append(raw, page.Items...)
		if page.Continue == "" || len(raw) >= max {
			return raw, page.Continue != "", nil
		}
		q.Set("continue", page.Continue)
	}
}

// bundlePage is the records of one request.
const bundlePage = 500

// Metrics returns the metrics of the first head that responds, in the format of Prometheus.
func (c *Client) Metrics(ctx context.Context) ([]byte, error) {
	resp, _, err := c.send(ctx, call{method: http.MethodGet, path: "/metrics"})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}
