package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// Bounds of one entry. The error of a request is bounded by [apitypes.Brief].
const (
	maxAuditFields = 32
	maxAuditAlso   = 16
)

// auditTimeout bounds the write of an entry of its own.
const auditTimeout = 2 * time.Second

// serveAudited serves a route that changes something. Each transaction of the request writes an entry about itself.
func (h *Handler) serveAudited(w http.ResponseWriter, r *http.Request, rt route, c *caller) error {
	about := h.newAudit(r, rt, c)
	ctx := store.BeforeCommit(r.Context(), func(tx *store.Tx) error {
		entry := about
		describeChanges(&entry, tx.Changes())
		return appendAudit(tx, entry)
	})
	err := rt.serve(w, r.WithContext(ctx), c)
	switch {
	case errors.Is(err, trivet.ErrForbidden), errors.Is(err, trivet.ErrInvalid) && !rt.preview:
		h.auditRefused(r.Context(), about, err)
	case err == nil && rt.outside:
		h.writeAudit(r.Context(), about)
	}
	return err
}

// auditRead records a read of secrets, which never shows their values: once a minute for each token and URL, within
// limits.
func (h *Handler) auditRead(r *http.Request, rt route, c *caller) {
	if !readsSecrets(r, rt) || !h.audits.first(c.token.Name+" "+r.URL.Path, h.Now()) {
		return
	}
	omitted, ok := h.audits.allow("reads of "+c.account, h.Now())
	if !ok {
		return
	}
	entry := h.newAudit(r, rt, c)
	entry.Kind, entry.Omitted = "Secret", omitted
	h.writeAudit(r.Context(), entry)
}

// readsSecrets reports whether a request reads the records of secrets.
func readsSecrets(r *http.Request, rt route) bool {
	if rt.path != "/v1/watch" {
		return rt.kind == "Secret"
	}
	kinds := r.URL.Query().Get("kinds")
	return kinds == "" || slices.ContainsFunc(strings.Split(kinds, ","), func(name string) bool {
		info, err := trivet.LookupKind(name)
		return err == nil && info.Kind == "Secret"
	})
}

// auditRefused records a refused request, within limits.
func (h *Handler) auditRefused(ctx context.Context, entry trivet.Audit, err error) {
	omitted, ok := h.audits.allow(entry.Account, h.Now())
	if !ok {
		return
	}
	entry.Result, entry.Omitted = trivet.CodeOf(err), omitted
	entry.Error = auth.Redact(apitypes.Brief(err.Error()))
	h.writeAudit(ctx, entry)
}

// writeAudit writes an entry that belongs to no change of a record. Where that fails, it is in this head's log.
func (h *Handler) writeAudit(ctx context.Context, entry trivet.Audit) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTimeout)
	defer cancel()
	_, err := h.Fleet.Store.Update(ctx, func(tx *store.Tx) error { return appendAudit(tx, entry) })
	if err != nil {
		h.Log.Warn("cannot write to the audit log", "account", entry.Account, "token", entry.Token, "from", entry.From,
			"action", entry.Action, "kind", entry.Kind, "name", entry.Name, "request", entry.Request,
			"result", entry.Result, "error", err)
	}
}

func appendAudit(tx *store.Tx, entry trivet.Audit) error {
	doc, err := json.Marshal(entry)
	if err == nil {
		tx.Append(state.AuditStream, doc)
	}
	return err
}

// newAudit returns what is known of a request before it is served.
func (h *Handler) newAudit(r *http.Request, rt route, c *caller) trivet.Audit {
	from, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		from = r.RemoteAddr
	}
	name := cmp.Or(r.PathValue("name"), r.PathValue("digest"), r.URL.Query().Get("digest"), r.PathValue("id"))
	return trivet.Audit{
		Time: h.Now().UTC(), Head: h.Fleet.Self(), Account: c.account, Token: c.token.Name, From: from,
		Request: requestID(r.Context()), Action: rt.action(), Kind: rt.kind,
		Project: fmt.Sprintf("%.*s", trivet.MaxProject, r.PathValue("project")),
		Name:    fmt.Sprintf("%.*s", maxName, name), Result: trivet.AuditOK,
	}
}

// maxName bounds a name that may not be one.
const maxName = trivet.MaxName

// action returns what a route does, in one word.
func (rt route) action() string {
	last := rt.path[strings.LastIndexByte(rt.path, '/')+1:]
	switch {
	case rt.method == http.MethodGet:
		return "read"
	case rt.method == http.MethodDelete:
		return "delete"
	case rt.method == http.MethodPut, rt.method == http.MethodPatch:
		return "update"
	case strings.Count(strings.Replace(rt.path, inProject, "/v1/", 1), "/") == 2: // POST /v1/machines
		return "create"
	}
	return last
}

// describeChanges adds what a transaction changes: the record that the request is about, and the names of others.
// Events describe these changes themselves.
func describeChanges(entry *trivet.Audit, changes []store.Change) {
	changes = slices.DeleteFunc(changes, func(c store.Change) bool { return c.Kind == "Event" })
	main := slices.IndexFunc(changes, func(c store.Change) bool {
		return c.Kind == entry.Kind && (entry.Name == "" || c.Name == trivet.FullName(entry.Project, entry.Name))
	})
	for i, c := range changes {
		switch {
		case i == main:
			entry.UID = c.UID
			if trivet.ScopeOf(c.Kind) == trivet.ScopeProject {
				entry.Project, entry.Name = trivet.SplitName(c.Name)
			} else {
				entry.Name = c.Name
			}
			switch {
			case c.Old == nil && entry.Action == "update": // by an apply
				entry.Action = "create"
			case c.Old != nil && c.New != nil:
				entry.Fields = changedFields(c.Old, c.New)
			}
		case len(entry.Also) < maxAuditAlso:
			entry.Also = append(entry.Also, strings.ToLower(string(c.Kind))+"/"+trivet.ShortName(c.Name))
		case len(entry.Also) == maxAuditAlso:
			entry.Also = append(entry.Also, "and others")
		}
	}
}
