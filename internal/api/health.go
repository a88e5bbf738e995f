package api

import (
	"net/http"
	"reflect"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
)

func (h *Handler) healthRoutes() {
	h.Version.Go = runtime.Version()
	// etcd registers its metrics with the default registry, as those of the Go runtime and the process are.
	all := prometheus.Gatherers{h.Metrics, prometheus.DefaultGatherer}
	shown := promhttp.HandlerFor(all, promhttp.HandlerOpts{Registry: h.Metrics})
	h.add(route{method: "GET", path: "/livez", summary: "Liveness of this head", outputs: "text/plain",
		out:   reflect.TypeFor[string](),
		serve: func(w http.ResponseWriter, r *http.Request, _ *caller) error { return respondText(w, "ok\n") }})
	h.add(route{method: "GET", path: "/readyz", summary: "Readiness of this head for writes", outputs: "text/plain",
		out: reflect.TypeFor[string](),
		serve: func(w http.ResponseWriter, r *http.Request, _ *caller) error {
			if err := h.Ready(r.Context()); err != nil {
				return err
			}
			return respondText(w, "ready\n")
		}})
	h.add(route{method: "GET", path: "/v1/version", summary: "Version of this head",
		out: reflect.TypeFor[trivet.Version](),
		serve: func(w http.ResponseWriter, r *http.Request, _ *caller) error {
			return respond(w, http.StatusOK, h.Version)
		}})
	h.add(route{method: "GET", path: "/metrics", verb: auth.Read, kind: "Head", summary: "Metrics for Prometheus",
		outputs: "text/plain",
		out:     reflect.TypeFor[string](), serve: func(w http.ResponseWriter, r *http.Request, _ *caller) error {
			shown.ServeHTTP(w, r)
			return nil
		}})
	h.add(route{method: "GET", path: "/openapi.json", verb: auth.Read, kind: "Head", summary: "This document",
		out: reflect.TypeFor[any](),
		serve: func(w http.ResponseWriter, r *http.Request, _ *caller) error {
			w.Header().Set("Content-Type", "application/json")
			_, err := w.Write(h.OpenAPI())
			return err
		}})
}

func respondText(w http.ResponseWriter, text string) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, err := w.Write([]byte(text))
	return err
}

func whoami(w http.ResponseWriter, _ *http.Request, c *caller) error {
	return respond(w, http.StatusOK, trivet.Whoami{
		Account: c.account, Role: string(c.role), Token: c.token.Name, Expires: c.token.Spec.Expires,
	})
}
