// Package api is a head's HTTP door for people, programs and agents: records of every kind in one generic way, the change
// feed, blobs, logs and the agents' door. A request is checked, is at most one transaction, and is answered; it has no
// other effect, and carries all it needs, so that every head can serve it.
//
// Way of a request: serve.go names, bounds, counts and logs it; routes.go finds its operation and lets the caller in
// (caller.go); records.go reads, write.go writes, with what a kind adds in its own file (machine.go, secret.go,
// network.go, ...); watch.go follows. openapi.go tells all of it to programs.
package api

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/blob"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/membership"
	"github.com/trivet-project/trivet/internal/presence"
	"github.com/trivet-project/trivet/internal/replica"
)

// Config is what the API stands on. All of it is needed but Now.
type Config struct {
	Fleet *fleet.Fleet // with the store and its tables
	// Heads lets heads join and leave.
	Heads *membership.Records
	// Presence tracks the heartbeats of agents.
	Presence *presence.Tracker
	Keys     *auth.Keys
	Blobs    *blob.Store
	// Copies are of blobs at other heads: content is acknowledged when two heads hold it.
	Copies *replica.Blobs
	Logs   *replica.Logs
	Log    *slog.Logger
	// Metrics takes the API's own counters; /metrics shows all that is in it.
	Metrics *prometheus.Registry
	Version trivet.Version
	// Ready says why this head cannot serve writes; nil when it can.
	Ready func(ctx context.Context) error
	// Cluster is the control plane as this head sees it.
	Cluster func() trivet.Cluster
	// CheckTemplate says what is wrong with a template's texts.
	CheckTemplate func(*trivet.Template) error
	Now           func() time.Time // nil: time.Now
}

// Handler serves the API.
type Handler struct {
	Config
	mux       *http.ServeMux
	doc       *huma.OpenAPI
	docJSON   []byte
	metrics   *metrics
	strangers strangers
	watches   chan struct{} // holds one for each open feed
	waiting   waiting
	// freshening holds one for each who asks the cluster what is the latest
	freshening chan struct{}
	admission  map[trivet.Kind]admission
	stopping   context.Context // ended when feeds shall move to other heads
	drain      <-chan struct{} // of stopping
	stop       context.CancelFunc
}

// maxWatches bounds the feeds and followed logs of one head.
const maxWatches = 4096

// New makes the handler. It is to be served over TLS, with http.Server.MaxHeaderBytes set to [MaxHeader].
func New(cfg Config) (*Handler, error) {
	h := &Handler{
		Config: cfg, mux: http.NewServeMux(), doc: newDocument(cfg.Version.Version), metrics: newMetrics(cfg.Metrics),
		watches: make(chan struct{}, maxWatches), freshening: make(chan struct{}, maxFresh),
	}
	h.stopping, h.stop = context.WithCancel(context.Background())
	h.drain = h.stopping.Done()
	h.admission = h.admissions()
	if h.Now == nil {
		h.Now = time.Now
	}
	h.routes()
	var err error
	h.docJSON, err = h.doc.MarshalJSON()
	return h, err
}

// Drain ends every feed cleanly, so that their clients go on at other heads. New feeds are refused from then on.
func (h *Handler) Drain() { h.stop() }

// OpenAPI gives the document that the head serves.
func (h *Handler) OpenAPI() []byte { return h.docJSON }
