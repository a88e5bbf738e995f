package api

import (
	"net/http"
	"net/url"
	"reflect"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
)

// prometheusRoutes serve what Prometheus finds the heads by: its service discovery by HTTP.
func (h *Handler) prometheusRoutes() {
	h.add(route{method: "GET", path: "/v1/prometheus/targets", verb: auth.Read, kind: "Head",
		summary: "The heads as scrape targets, for the HTTP service discovery of Prometheus",
		out:     reflect.TypeFor[[]trivet.ScrapeTarget](),
		serve: func(w http.ResponseWriter, r *http.Request, _ *caller) error {
			return respond(w, http.StatusOK, h.scrapeTargets())
		}})
}

// scrapeTargets returns the heads that serve metrics, each once, in order of name. A witness serves none.
func (h *Handler) scrapeTargets() []trivet.ScrapeTarget {
	all := []trivet.ScrapeTarget{} // without heads it is [], as Prometheus expects
	for head := range h.Fleet.Heads.AllShared() {
		if !head.Serves() || len(head.Status.API) == 0 {
			continue
		}
		if u, err := url.Parse(head.Status.API[0]); err == nil && u.Host != "" {
			all = append(all, trivet.ScrapeTarget{Targets: []string{u.Host}, Labels: map[string]string{"head": head.Name}})
		}
	}
	return all
}
