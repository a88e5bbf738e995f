package api_test

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// routeAccess has every route, with the lowest caller that may use it. anyone needs no credential; an agent signs its
// requests, and no token is enough.
const routeAccess = `
	anyone    /agent/v1/hello                    POST
	anyone    /livez                             GET
	anyone    /readyz                            GET
	anyone    /v1/version                        GET
	agent     /agent/v1/logs                     POST
	agent     /agent/v1/sync                     POST
	viewer    /metrics                           GET
	viewer    /openapi.json                      GET
	viewer    /v1/accounts                       GET
	viewer    /v1/accounts/{name}                GET
	viewer    /v1/addresses                      GET
	viewer    /v1/addresses/{name}               GET
	viewer    /v1/backupschedules                GET
	viewer    /v1/backupschedules/{name}         GET
	viewer    /v1/blobs                          GET
	viewer    /v1/blobs/{digest}                 GET
	viewer    /v1/boot-ca                        GET
	viewer    /v1/ca                             GET
	viewer    /v1/cluster                        GET
	viewer    /v1/events                         GET
	viewer    /v1/events/{name}                  GET
	viewer    /v1/heads                          GET
	viewer    /v1/heads/{name}                   GET
	viewer    /v1/images                         GET
	viewer    /v1/keys                           GET
	viewer    /v1/keys/{name}                    GET
	viewer    /v1/upgrades                       GET
	viewer    /v1/upgrades/{name}                GET
	viewer    /v1/projects/{project}/images      GET
	viewer    /v1/projects/{project}/images/{name} GET
	viewer    /v1/machines                       GET
	viewer    /v1/machines/{name}                GET
	viewer    /v1/machines/{name}/progress       GET
	viewer    /v1/macs                           GET
	viewer    /v1/macs/{name}                    GET
	viewer    /v1/models                         GET
	viewer    /v1/networks                       GET
	viewer    /v1/networks/{name}                GET
	viewer    /v1/notifiers                      GET
	viewer    /v1/notifiers/{name}               GET
	viewer    /v1/platforms                      GET
	viewer    /v1/platforms/{name}               GET
	viewer    /v1/prometheus/targets             GET
	viewer    /v1/provisions                     GET
	viewer    /v1/provisions/queue               GET
	viewer    /v1/projects/{project}/provisions  GET
	viewer    /v1/projects/{project}/provisions/{name} GET
	viewer    /v1/secrets                        GET
	viewer    /v1/projects/{project}/secrets     GET
	viewer    /v1/projects/{project}/secrets/{name} GET
	viewer    /v1/sites                          GET
	viewer    /v1/sites/{name}                   GET
	viewer    /v1/status                         GET
	viewer    /v1/templates                      GET
	viewer    /v1/projects/{project}/templates   GET
	viewer    /v1/projects/{project}/templates/{name} GET
	viewer    /v1/tokens                         GET
	viewer    /v1/tokens/{name}                  GET
	viewer    /v1/watch                          GET
	viewer    /v1/whoami                         GET
	viewer    /v1/workflows                      GET
	viewer    /v1/projects/{project}/workflows   GET
	viewer    /v1/projects/{project}/workflows/{name} GET
	viewer    /v1/projects/{project}/workflows/{name}/logs GET
	operator  /v1/blobs                          POST
	operator  /v1/blobs/{digest}                 DELETE
	operator  /v1/blobs/check                    POST
	operator  /v1/projects/{project}/images      POST
	operator  /v1/projects/{project}/images/{name} DELETE PATCH PUT
	operator  /v1/machines                       POST
	operator  /v1/machines/{name}                DELETE PATCH PUT
	operator  /v1/machines/{name}/accept         POST
	operator  /v1/machines/{name}/console        GET POST
	operator  /v1/machines/{name}/console/input  POST
	operator  /v1/machines/{name}/forget         POST
	operator  /v1/machines/{name}/power          GET POST
	operator  /v1/machines/{name}/quarantine     POST
	operator  /v1/machines/{name}/release        POST
	operator  /v1/machines/{name}/rename         POST
	operator  /v1/networks                       POST
	operator  /v1/networks/{name}                DELETE PATCH PUT
	operator  /v1/platforms                      POST
	operator  /v1/platforms/{name}               DELETE PATCH PUT
	operator  /v1/projects/{project}/provisions  POST
	operator  /v1/projects/{project}/provisions/{name} DELETE PATCH PUT
	operator  /v1/projects/{project}/provisions/render POST
	operator  /v1/projects/{project}/provisions/{name}/pause POST
	operator  /v1/projects/{project}/provisions/{name}/resume POST
	operator  /v1/projects/{project}/provisions/{name}/redeploy POST
	operator  /v1/projects/{project}/provisions/{name}/redeploy/plan POST
	operator  /v1/projects/{project}/provisions/{name}/replace POST
	operator  /v1/projects/{project}/provisions/{name}/retry POST
	operator  /v1/projects/{project}/provisions/{name}/resolve POST
	operator  /v1/projects/{project}/templates   POST
	operator  /v1/projects/{project}/templates/{name} DELETE PATCH PUT
	operator  /v1/uploads                        POST
	operator  /v1/uploads/{id}                   DELETE GET PATCH
	operator  /v1/uploads/{id}/finish            POST
	admin     /v1/audit                          GET
	admin     /v1/accounts                       POST
	admin     /v1/accounts/{name}                DELETE PATCH PUT
	admin     /v1/backupschedules                POST
	admin     /v1/backupschedules/{name}         DELETE PATCH PUT
	admin     /v1/heads/token                    POST
	admin     /v1/heads/{name}/remove            POST
	admin     /v1/heads/{name}/settings          PUT
	admin     /v1/keys/{name}/drop-former        POST
	admin     /v1/keys/{name}/rotate             POST
	admin     /v1/upgrades/heads/run             POST
	admin     /v1/upgrades/heads/pause           POST
	admin     /v1/upgrades/heads/resume          POST
	admin     /v1/upgrades/heads/rollback        POST
	admin     /v1/notifiers                      POST
	admin     /v1/notifiers/{name}               DELETE PATCH PUT
	admin     /v1/notifiers/{name}/test          POST
	admin     /v1/projects/{project}/secrets     POST
	admin     /v1/projects/{project}/secrets/{name} DELETE PATCH PUT
	admin     /v1/sites                          POST
	admin     /v1/sites/{name}                   DELETE PATCH PUT
	admin     /v1/sites/{name}/backup            POST
	admin     /v1/sites/{name}/backups           POST
	admin     /v1/tokens/issue                   POST
	admin     /v1/tokens/{name}                  DELETE
`

// callers are the lowest first.
var callers = []string{"anyone", "agent", "viewer", "operator", "admin"}

// accessOf parses routeAccess.
func accessOf(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for line := range strings.Lines(routeAccess) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if !slices.Contains(callers, f[0]) {
			t.Fatalf("unknown caller %s", f[0])
		}
		for _, method := range f[2:] {
			all[method+" "+f[1]] = f[0]
		}
	}
	return all
}

// routesOf returns the routes that the handler serves, by the document that is made of them.
func routesOf(t *testing.T, h *head) (all []string) {
	t.Helper()
	var doc struct {
		Paths map[string]map[string]any `json:"paths"`
	}
	if err := json.Unmarshal(h.handler.OpenAPI(), &doc); err != nil {
		t.Fatal(err)
	}
	for path, operations := range doc.Paths {
		for method := range operations {
			all = append(all, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(all)
	return all
}

// Every route is in the table. It serves whom the table names and higher roles, refuses all others, and reads no body
// before it knows its caller.
func TestEveryRouteByEveryRole(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	tokens := map[string]string{"admin": h.admin, "operator": h.account("op", "operator"),
		"viewer": h.account("vi", "viewer"), "garbage": "trivet_x", "anyone": "",
		"revoked": strings.Replace(h.admin, h.admin[len(h.admin)-4:], "aaaa", 1)}
	want := accessOf(t)
	for _, route := range routesOf(t, h) {
		lowest, ok := want[route]
		if !ok {
			t.Errorf("%s is not in the table", route)
		}
		delete(want, route)
		for who, token := range tokens {
			rank := slices.Index(callers, who) // below 0: as anyone
			status, read := h.inProcess(route, token)
			var allowed bool
			switch lowest {
			case "anyone":
				allowed = true
			case "agent":
				allowed = false
			default:
				allowed = rank >= slices.Index(callers, lowest)
			}
			refused := http.StatusUnauthorized
			if rank >= slices.Index(callers, "viewer") && lowest != "agent" {
				refused = http.StatusForbidden
			}
			if !allowed && (status != refused || read) {
				t.Errorf("%s by %s: %d, body read: %v; want %d", route, who, status, read, refused)
			}
			if allowed && (status == http.StatusUnauthorized || status == http.StatusForbidden) {
				t.Errorf("%s by %s: %d", route, who, status)
			}
		}
	}
	for route := range want {
		t.Errorf("%s is in the table, and not served", route)
	}
}

// inProcess sends a request for things that do not exist, and reports whether its body was read.
func (h *head) inProcess(route, token string) (status int, read bool) {
	h.t.Helper()
	method, path, _ := strings.Cut(route, " ")
	path = strings.NewReplacer("{name}", "none", "{id}", "none", "{digest}", "none", "/v1/watch", "/v1/watch?from=x").
		Replace(path)
	body := &watchedBody{Reader: strings.NewReader("x")}
	r := httptest.NewRequestWithContext(h.t.Context(), method, path, body)
	r.TLS = &tls.ConnectionState{}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	h.handler.ServeHTTP(w, r)
	return w.Code, body.read
}

// watchedBody notes whether it was read.
type watchedBody struct {
	io.Reader
	read bool
}

func (b *watchedBody) Read(p []byte) (int, error) {
	b.read = true
	return b.Reader.Read(p)
}

// A watch ends when its token is revoked, or when its account has another role: what it may see has changed.
func TestWatchEndsWithItsToken(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	admin := h.client(h.admin)
	for account, change := range map[string]func(who trivet.Whoami) error{
		"revoked": func(who trivet.Whoami) error {
			return admin.Kind(kindInfo(t, "tokens")).Delete(t.Context(), who.Token)
		},
		"promoted": func(who trivet.Whoami) error {
			_, err := client.Of[trivet.Account](admin).Patch(t.Context(), who.Account,
				[]byte(`{"spec":{"role":"operator"}}`), 0)
			return err
		},
	} {
		token := h.account(account, "viewer")
		who, err := h.client(token).Whoami(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		resp := h.do(token, "GET", "/v1/watch?kinds=machines", "")
		defer resp.Body.Close()
		if err := change(who); err != nil {
			t.Fatal(err)
		}
		put(h, h.fleet.Machines, machine("of-"+account)) // it must not see this
		text, err := io.ReadAll(resp.Body)
		if err != nil || !strings.Contains(string(text), "event: error") || strings.Contains(string(text), "of-"+account) {
			t.Errorf("%s: the watch sent %q, %v", account, text, err)
		}
	}
}
