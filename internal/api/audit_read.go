package api

import (
	"encoding/json"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// Entries that a head reads at once, and for one request at most.
const (
	auditPage    = 500
	maxAuditScan = 10 * auditPage
)

func (h *Handler) auditRoutes() {
	h.add(route{method: "GET", path: "/v1/audit", verb: auth.Write, kind: "Account",
		summary: "List what accounts did, the newest first; for admins",
		query: []string{"account: by this account", "kind: about records of this kind",
			"project: about records of this project",
			"name: about the record of this name", "since: not before this time (RFC 3339)", "limit: entries a page",
			"continue: the last page's continue"},
		out: reflect.TypeFor[trivet.AuditList](), serve: h.listAudit})
}

// auditFilter selects entries.
type auditFilter struct {
	account string
	kind    trivet.Kind
	project string
	name    string
	since   time.Time
}

func (f auditFilter) matches(e *trivet.Audit) bool {
	return (f.account == "" || e.Account == f.account) && (f.kind == "" || e.Kind == f.kind) &&
		(f.project == "" || e.Project == f.project) && (f.name == "" || e.Name == f.name)
}

func parseAuditFilter(q url.Values) (f auditFilter, err error) {
	f.account, f.project, f.name = q.Get("account"), q.Get("project"), q.Get("name")
	if kind := q.Get("kind"); kind != "" {
		info, err := trivet.LookupKind(kind)
		if err != nil {
			return f, err
		}
		f.kind = info.Kind
	}
	if since := q.Get("since"); since != "" {
		if f.since, err = time.Parse(time.RFC3339, since); err != nil {
			return f, &trivet.FieldError{Field: "since", Problem: "is not a time such as 2026-01-31T15:04:05Z"}
		}
	}
	return f, nil
}

var auditID = regexp.MustCompile(`^[0-9a-f]{16}-[a-z2-7]{10}$`)

// listAudit returns a page of the audit log. It reads this head's member, so it needs no quorum.
func (h *Handler) listAudit(w http.ResponseWriter, r *http.Request, _ *caller) error {
	q := r.URL.Query()
	filter, err := parseAuditFilter(q)
	if err != nil {
		return err
	}
	limit, err := pageSize(q.Get("limit"))
	if err != nil {
		return err
	}
	after := q.Get("continue")
	if after != "" && !auditID.MatchString(after) {
		return &trivet.FieldError{Field: "continue", Problem: "is not the value of an earlier page"}
	}
	page := trivet.AuditList{Items: []trivet.Audit{}}
	for range maxAuditScan / auditPage {
		entries, err := h.Fleet.Store.Cold(r.Context(), state.AuditStream, after, auditPage)
		if err != nil {
			return err
		}
		for _, cold := range entries {
			after = cold.ID
			if !filter.since.IsZero() && cold.ID > store.ColdSince(filter.since) {
				return respond(w, http.StatusOK, page)
			}
			e, err := readAudit(cold)
			if err == nil && !filter.matches(&e) {
				continue
			}
			if page.Items = append(page.Items, e); len(page.Items) == limit {
				page.Continue = after
				return respond(w, http.StatusOK, page)
			}
		}
		if len(entries) < auditPage {
			return respond(w, http.StatusOK, page)
		}
	}
	page.Continue = after
	return respond(w, http.StatusOK, page)
}

// readAudit returns an entry. One that cannot be read is shown as such.
func readAudit(cold store.ColdEntry) (trivet.Audit, error) {
	var e trivet.Audit
	err := cold.Err
	if err == nil {
		err = json.Unmarshal(cold.Doc, &e)
	}
	if err != nil {
		e = trivet.Audit{Result: trivet.CodeOf(err), Error: err.Error()}
	}
	e.ID = cold.ID
	return e, err
}
