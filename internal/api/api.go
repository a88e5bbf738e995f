// Package api is a head's HTTP API for people, programs and agents: records of every kind in one generic way, the
// change feed, blobs, logs and the API of agents. A request is checked and is at most one transaction; it has no
// other effect and needs no session, so every head can serve it.
//
// Path of a request: serve.go bounds, counts and logs it; routes.go finds its operation and authorizes the caller
// (caller.go); records.go and page.go read, write.go writes, with the kind's admission (admission.go, machine.go,
// secret.go, network.go, ...); watch.go and feed.go send changes. openapi.go documents the routes.
package api

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/blob"
	"github.com/trivet-project/trivet/internal/console"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/limit"
	"github.com/trivet-project/trivet/internal/membership"
	"github.com/trivet-project/trivet/internal/presence"
	"github.com/trivet-project/trivet/internal/recovery"
	"github.com/trivet-project/trivet/internal/replica"
	"github.com/trivet-project/trivet/internal/store"
)

// Config is what the API needs. All of it is required but Now.
type Config struct {
	Fleet *fleet.Fleet // with the store and its tables
	// Heads lets heads join and leave.
	Heads *membership.Records
	// Presence tracks the heartbeats of agents.
	Presence *presence.Tracker
	Keys     *auth.Keys
	Blobs    *blob.Store
	// Copies replicates blobs: content is acknowledged when two heads hold it.
	Copies *replica.Blobs
	Logs   *replica.Logs
	// Consoles are the serial consoles of machines.
	Consoles *console.Consoles
	// Backups makes backups of the cluster.
	Backups *recovery.Source
	// Power asks the BMC of a machine, which has one, for its power state, in a bounded time.
	Power func(ctx context.Context, m *trivet.Machine) (string, error)
	Log   *slog.Logger
	// Metrics is the registry of the API's metrics, which /metrics serves.
	Metrics *prometheus.Registry
	Version trivet.Version
	// Ready returns why this head cannot serve writes, or nil.
	Ready func(ctx context.Context) error
	// Cluster returns the state of the control plane as this head sees it.
	Cluster func() trivet.Cluster
	// Status collects the state of the site, at most about once a second, and checks the invariants.
	Status func(ctx context.Context) (trivet.StatusReport, error)
	// CheckTemplate returns an error if a template's texts are invalid.
	CheckTemplate func(*trivet.Template) error
	Now           func() time.Time // nil: time.Now
}

// Handler serves the API.
type Handler struct {
	Config
	mux *http.ServeMux
	// documented are the routes; openAPI writes their document, at the first request of it.
	documented []route
	openAPI    func() []byte
	trust      string // pins of the CAs, as clients and agents get them
	metrics    *metrics
	refusals   refusals
	audits     auditLimit
	group      *store.Group // what people and programs write; their number does not delay the transitions of machines
	watches    *limit.Pool  // of open feeds
	unsent     unsent
	bodies     bodies
	waiting    waiting
	// freshening holds one for each request that reads the latest revision from the cluster
	freshening chan struct{}
	// unknownFresh counts those of callers that are not recognised.
	unknownFresh *limit.Pool
	powerReads   chan struct{} // holds one for each BMC that is asked now
	confirmed    confirmed
	admission    map[trivet.Kind]admission
	scan         int // records that are read for one page of a list
	writeTimeout time.Duration
	stopping     context.Context // ended when watches must move to other heads
	drain        <-chan struct{} // of stopping
	stop         context.CancelFunc
}

// maxWatches and maxAddressWatches bound the watches and followed logs of one head, in total and for one address.
const maxWatches, maxAddressWatches = 4096, 1024

// New returns the handler. It must be served over TLS, with http.Server.MaxHeaderBytes set to [MaxHeader].
func New(cfg Config) *Handler {
	h := &Handler{
		Config: cfg, group: cfg.Fleet.Store.NewGroup(),
		mux: http.NewServeMux(), metrics: newMetrics(cfg.Metrics),
		watches: limit.NewPool(maxWatches, maxAddressWatches), freshening: make(chan struct{}, maxFresh), bodies: newBodies(),
		powerReads:   make(chan struct{}, maxPowerReads),
		unknownFresh: limit.NewPool(maxUnknownFresh, maxAddressFresh),
		unsent:       unsent{limit.NewPool(maxUnsent, maxAddressUnsent)}, writeTimeout: writeTimeout,
		scan: maxScan,
	}
	h.stopping, h.stop = context.WithCancel(context.Background())
	h.drain = h.stopping.Done()
	if cfg.Keys != nil {
		h.trust = cfg.Keys.CA.Trust()
	}
	h.admission = h.admissions()
	if h.Now == nil {
		h.Now = time.Now
	}
	h.routes()
	h.openAPI = sync.OnceValue(func() []byte { return openAPI(h.Version.Version, h.documented) })
	return h
}

// Drain ends every watch cleanly, so that the clients continue at other heads. New watches are refused from then on.
func (h *Handler) Drain() { h.stop() }

// OpenAPI returns the document that the head serves.
func (h *Handler) OpenAPI() []byte { return h.openAPI() }
