package api

import (
	"fmt"
	"net/http"
	"reflect"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
	"github.com/trivet-project/trivet/internal/auth"
)

// statusRoutes serve the state of the site, and record what the commands of backups report for it.
func (h *Handler) statusRoutes() {
	h.add(route{method: "GET", path: "/v1/status", verb: auth.Read, kind: "Head",
		summary: "The invariants of the site with their states, and the facts of all heads that they were checked by",
		out:     reflect.TypeFor[trivet.StatusReport](),
		serve: func(w http.ResponseWriter, r *http.Request, _ *caller) error {
			report, err := h.Status(r.Context())
			if err != nil {
				return err
			}
			return respond(w, http.StatusOK, report)
		}})
	h.add(route{method: "POST", path: "/v1/sites/{name}/backups", verb: auth.Write, kind: "Site",
		summary: "Record that a backup was created, or proven to be restorable",
		in:      reflect.TypeFor[trivet.BackupReport](), status: http.StatusNoContent, serve: h.recordBackup})
}

func (h *Handler) recordBackup(w http.ResponseWriter, r *http.Request, _ *caller) error {
	if name := r.PathValue("name"); name != trivet.SiteName {
		return &trivet.Error{Op: "record backup", Kind: "Site", Name: fmt.Sprintf("%.*s", maxName, name),
			Err: trivet.ErrNotFound, Hint: "the only site is named " + trivet.SiteName}
	}
	body, err := h.readBody(w, r, 64<<10)
	if err != nil {
		return err
	}
	var report trivet.BackupReport
	if err := apitypes.DecodeStrict(body, &report); err != nil {
		return err
	}
	return done(w, h.Backups.Record(r.Context(), report))
}
