package api

import (
	"net/http"
	"reflect"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
)

// route is one operation: how it is served, who may call it, and its entry in the OpenAPI document.
type route struct {
	method string
	path   string
	// verb and kind are what a caller's role must allow; an empty verb needs no account: the operation authenticates
	// its callers itself, or returns nothing that is secret.
	verb    auth.Verb
	kind    trivet.Kind
	summary string
	query   []string     // "name: what it does"
	in, out reflect.Type // bodies; nil: none
	media   string       // of in where it is not JSON
	outputs string       // media type of out where it is not JSON
	items   reflect.Type // of the page of records that is the response, instead of out
	status  int          // of success; 0 means 200
	outside bool         // it changes what is not a record
	preview bool         // it changes nothing, so that invalid requests are not in the audit log
	serve   func(w http.ResponseWriter, r *http.Request, c *caller) error
}

// add registers a route and documents it.
func (h *Handler) add(rt route) {
	h.mux.HandleFunc(rt.method+" "+rt.path, func(w http.ResponseWriter, r *http.Request) {
		q := about(r.Context())
		q.route = rt.method + " " + rt.path
		w.(*recorder).err = h.serveRoute(w, r, rt, q)
	})
	h.documented = append(h.documented, rt)
}

// serveRoute serves a route to a caller whose role allows it.
func (h *Handler) serveRoute(w http.ResponseWriter, r *http.Request, rt route, q *request) error {
	if rt.verb == "" {
		return rt.serve(w, r, nil)
	}
	c, err := h.authenticate(r)
	if err != nil {
		return err
	}
	q.account = c.account
	if err := auth.Allow(c.role, rt.verb, rt.kind); err != nil {
		h.auditRefused(r.Context(), h.newAudit(r, rt, c), err)
		return err
	}
	h.setHeads(w)
	if err := h.reach(w.(*recorder), r); err != nil {
		return err
	}
	if rt.verb != auth.Read && rt.method != http.MethodGet {
		return h.serveAudited(w, r, rt, c)
	}
	h.auditRead(r, rt, c)
	return rt.serve(w, r, c)
}

// routes are all operations.
func (h *Handler) routes() {
	for _, info := range trivet.Kinds {
		h.recordRoutes(info)
	}
	h.add(route{method: "GET", path: "/v1/watch", verb: auth.Read, summary: "Follow records as server-sent events",
		query: []string{"kinds: kinds to follow, separated by commas", "names: names to follow",
			"project: of kinds that belong to projects, only the records of this one; none follows those of all",
			"labels: label selector",
			"from: revision after which to begin; none begins with the current state"},
		out: reflect.TypeFor[any](), outputs: "text/event-stream", serve: h.watch})
	h.add(route{method: "GET", path: "/v1/whoami", verb: auth.Read, kind: "Account",
		summary: "Who the token belongs to",
		out:     reflect.TypeFor[trivet.Whoami](), serve: whoami})
	h.auditRoutes()
	h.tokenRoutes()
	h.headRoutes()
	h.prometheusRoutes()
	h.keyRoutes()
	h.upgradeRoutes()
	h.backupRoutes()
	h.statusRoutes()
	h.notifierRoutes()
	h.machineRoutes()
	h.provisionRoutes()
	h.recoverRoutes()
	h.consoleRoutes()
	h.blobRoutes()
	h.logRoutes()
	h.healthRoutes()
	h.agentRoutes()
	h.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { w.(*recorder).err = noSuchRoute(r) })
}

// inProject is the path of the records of one project.
const inProject = "/v1/projects/{project}/"

// projectOf returns the project that the URL names; empty: none.
func projectOf(r *http.Request) (string, error) {
	project := r.PathValue("project")
	if !strings.Contains(r.Pattern, inProject) {
		return "", nil
	}
	return project, trivet.ValidateProject(project)
}

// fullName returns the full name of the record that the URL names.
func fullName(r *http.Request) (string, error) {
	project, err := projectOf(r)
	return trivet.FullName(project, r.PathValue("name")), err
}

func (h *Handler) recordRoutes(info trivet.KindInfo) {
	all, t := "/v1/"+info.Plural, reflect.TypeOf(info.New())
	plural := all
	if info.Scope == trivet.ScopeProject {
		plural = inProject + info.Plural
	}
	one := plural + "/{name}"
	type recordHandler = func(http.ResponseWriter, *http.Request, *caller, trivet.KindInfo) error
	bind := func(f recordHandler) func(http.ResponseWriter, *http.Request, *caller) error {
		return func(w http.ResponseWriter, r *http.Request, c *caller) error { return f(w, r, c, info) }
	}
	list := route{method: "GET", path: plural, verb: auth.Read, kind: info.Kind, summary: "List " + info.Plural,
		query: []string{"labels: key=value and key!=value, separated by commas",
			"fields: the same over the record's JSON, status.state=available",
			"limit: records a page", "continue: the last page's continue"},
		items: t, serve: bind(h.list)}
	h.add(list)
	if all != plural {
		list.path, list.summary = all, "List "+info.Plural+" of all projects"
		h.add(list)
	}
	h.add(route{method: "GET", path: one, verb: auth.Read, kind: info.Kind, summary: "Read one of " + info.Plural,
		out: t, serve: bind(h.get)})
	if info.ReadOnly {
		return
	}
	h.add(route{method: "POST", path: plural, verb: auth.Write, kind: info.Kind,
		summary: "Create one of " + info.Plural,
		in:      t, out: t, status: http.StatusCreated, serve: bind(h.create)})
	h.add(route{method: "PUT", path: one, verb: auth.Write, kind: info.Kind, summary: "Replace labels and spec",
		in: t, out: t, serve: bind(h.replace)})
	h.add(route{method: "PATCH", path: one, verb: auth.Write, kind: info.Kind,
		summary: "Change labels and spec by a merge patch, or apply a record (" + trivet.MediaApplyPatch + ")",
		query: []string{"manager: whose fields an apply has, apply by default",
			"former: a manager whose fields an apply takes over",
			"force: an apply overwrites what others have changed"},
		in: reflect.TypeFor[map[string]any](), media: trivet.MediaMergePatch, out: t, serve: bind(h.patch)})
	h.deleteRoute(info, one, "Delete one of "+info.Plural)
}

func (h *Handler) deleteRoute(info trivet.KindInfo, path, summary string) {
	h.add(route{method: "DELETE", path: path, verb: auth.Write, kind: info.Kind, summary: summary,
		query: []string{"force: leave references that prevent the deletion without a target"},
		out:   reflect.TypeFor[trivet.Deletion](),
		serve: func(w http.ResponseWriter, r *http.Request, c *caller) error { return h.delete(w, r, c, info) }})
}

// noSuchRoute returns the error of a request that matches no route.
func noSuchRoute(r *http.Request) error {
	e := &trivet.Error{Op: r.Method + " " + r.URL.Path, Err: trivet.ErrNotFound,
		Hint: "see /openapi.json for the routes"}
	rest, ok := strings.CutPrefix(r.URL.Path, "/v1/")
	if !ok {
		return e
	}
	inside := strings.HasPrefix(rest, "projects/")
	if inside {
		_, rest, _ = strings.Cut(strings.TrimPrefix(rest, "projects/"), "/")
	}
	plural, name, _ := strings.Cut(rest, "/")
	info, err := trivet.LookupKind(plural)
	switch {
	case err != nil:
	case inside && info.Scope == trivet.ScopeCluster:
		e.Hint = info.Plural + " belong to no project: /v1/" + info.Plural
	case !inside && info.Scope == trivet.ScopeProject && (name != "" || info.Plural == plural):
		e.Hint = info.Plural + " belong to a project: /v1/projects/" + trivet.DefaultProject + "/" + info.Plural
	case info.Plural != plural:
		e.Hint = "did you mean /v1/" + info.Plural + "?"
	case info.ReadOnly:
		e.Err, e.Hint = trivet.ErrForbidden, info.Plural+" are written by Trivet only"
	}
	return e
}
