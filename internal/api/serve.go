package api

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
	"github.com/trivet-project/trivet/internal/auth"
)

// maxURL bounds a request's path and query, in bytes. MaxHeader is for http.Server.MaxHeaderBytes.
const (
	maxURL    = 8 << 10
	MaxHeader = 32 << 10
)

type requestKey struct{}

// request is the context of a request while it is served.
type request struct {
	id      string
	route   string // its pattern, for metrics
	account string
	// giveBack gives back the space for the body.
	giveBack func()
}

// end releases what was taken for the request.
func (q *request) end() {
	if q.giveBack != nil {
		q.giveBack()
	}
}

func about(ctx context.Context) *request {
	if q, ok := ctx.Value(requestKey{}).(*request); ok {
		return q
	}
	return &request{}
}

func requestID(ctx context.Context) string { return about(ctx).id }

var idForm = regexp.MustCompile(`^[-_.A-Za-z0-9]{1,64}$`)

// statusGone is counted and logged when the client did not wait for the response, as nginx does; it is never sent. A
// machine that is switched off while its agent waits for work is not a failure of the head.
const statusGone = 499

// ServeHTTP bounds, serves, counts and logs one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	q := &request{id: r.Header.Get(trivet.HeaderRequestID), route: "other"}
	if !idForm.MatchString(q.id) {
		q.id = newID()
	}
	r = r.WithContext(context.WithValue(r.Context(), requestKey{}, q))
	w.Header().Set(trivet.HeaderRequestID, q.id)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	limitBody(w, r)
	rec := &recorder{ResponseWriter: w}
	defer q.end()
	err := h.serve(rec, r)
	switch {
	case err == nil || rec.began:
	case r.Context().Err() != nil:
		rec.status = statusGone
	default:
		fail(rec, r, err)
	}
	took := time.Since(began)
	if errors.Is(err, errUnread) {
		h.metrics.unread.WithLabelValues(q.route).Inc()
	}
	h.metrics.requests.WithLabelValues(q.route, strconv.Itoa(rec.status)).Inc()
	h.metrics.seconds.WithLabelValues(q.route).Observe(took.Seconds())
	h.logRequest(r, q, rec, took, err)
}

func (h *Handler) serve(w *recorder, r *http.Request) (err error) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler:
			panic(p)
		default:
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	if len(r.RequestURI) > maxURL {
		return fmt.Errorf("URL of %d bytes: %w: at most %d", len(r.RequestURI), trivet.ErrTooLarge, maxURL)
	}
	h.mux.ServeHTTP(w, r)
	return w.err
}

// logRequest writes one line per request: reads and probes at debug level, the head's failures with their cause.
func (h *Handler) logRequest(r *http.Request, q *request, rec *recorder, took time.Duration, err error) {
	level := slog.LevelInfo
	switch {
	case rec.status >= 500 && !errors.Is(err, trivet.ErrUnavailable):
		level = slog.LevelError
	case errors.Is(err, errUnread):
	case rec.status == statusGone || rec.status < 400 && (r.Method == http.MethodGet || r.Method == http.MethodHead ||
		rec.quiet):
		level = slog.LevelDebug
	}
	if !h.Log.Enabled(r.Context(), level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("method", r.Method), slog.String("url", auth.RedactURL(r.URL)), slog.Int("status", rec.status),
		slog.Int64("bytes", rec.bytes), slog.Duration("took", took), slog.String("from", r.RemoteAddr),
		slog.String("account", q.account), slog.String("request", q.id),
	}
	if err != nil {
		attrs = append(attrs, slog.String("error", auth.Redact(apitypes.Brief(err.Error()))))
	}
	h.Log.LogAttrs(r.Context(), level, "api", attrs...)
}

func newID() string {
	var b [8]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// recorder records the status of a response.
type recorder struct {
	http.ResponseWriter
	status int
	bytes  int64
	began  bool
	head   func() // sets headers when the response begins; optional
	quiet  bool   // a heartbeat of an agent: too many to log
	err    error  // what the handler returned
}

func (w *recorder) begin(status int) {
	if w.began {
		return
	}
	w.began, w.status = true, status
	if w.head != nil {
		w.head()
	}
}

func (w *recorder) WriteHeader(status int) {
	w.begin(status)
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	w.begin(http.StatusOK)
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// Unwrap is for http.ResponseController and sendfile.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	watches  prometheus.Gauge
	refused  prometheus.Counter
	unread   *prometheus.CounterVec
	delayed  prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "trivet_api_requests_total", Help: "Requests by route and status."}, []string{"route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "trivet_api_request_seconds", Help: "Time to serve a request; of a watch, its duration.",
			Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}}, []string{"route"}),
		watches: prometheus.NewGauge(prometheus.GaugeOpts{Name: "trivet_api_watches", Help: "Open watches."}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "trivet_api_refused_tokens_total", Help: "Requests with an invalid token."}),
		unread: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "trivet_api_unread_responses_total",
			Help: "Responses and watches that ended as their client did not read them in time, by route.",
		}, []string{"route"}),
		delayed: prometheus.NewCounter(prometheus.CounterOpts{Name: "trivet_api_delayed_reports_total",
			Help: "Reports that an agent must send again, as those of its machine write too often or the head is overloaded."}),
	}
	reg.MustRegister(m.requests, m.seconds, m.watches, m.refused, m.unread, m.delayed)
	return m
}
