package cluster

import (
	"bufio"
	"context"
	"strconv"
	"strings"
)

// Metrics of etcd and of heads.
const (
	snapshotsSent = "etcd_network_snapshot_send_success"
	compactedAt   = "etcd_debugging_mvcc_compact_revision"
	usedBytes     = "trivet_store_used_bytes"
)

// metrics returns all metrics of a head by name: of one with labels, the sum.
func (h *head) metrics(ctx context.Context) (map[string]float64, error) {
	text, err := h.get(ctx, "/metrics", h.site.token)
	if err != nil {
		return nil, err
	}
	all := map[string]float64{}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		series, value, _ := strings.Cut(lines.Text(), " ")
		if _, labels, ok := strings.Cut(lines.Text(), "} "); ok {
			value = labels
		}
		name, _, _ := strings.Cut(series, "{")
		if v, err := strconv.ParseFloat(value, 64); err == nil && !strings.HasPrefix(name, "#") {
			all[name] += v
		}
	}
	return all, nil
}

// metricOfHeads returns the sum of a metric of all heads that answer.
func (s *site) metricOfHeads(ctx context.Context, name string) (sum float64) {
	for _, h := range s.heads {
		if all, err := h.metrics(ctx); err == nil {
			sum += all[name]
		}
	}
	return sum
}
