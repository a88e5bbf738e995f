package api

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// maxBackupTime bounds a backup: its copy of the store uses the head's disk until it was received.
const maxBackupTime = 2 * time.Hour

// backupRoutes serve backups. The keys in one can be read by the holder of the recovery key only.
func (h *Handler) backupRoutes() {
	rt := route{method: "POST", path: "/v1/sites/{name}/backup", verb: auth.Reveal, kind: "Site",
		summary: "Back up the store and the keys of the cluster, which are encrypted to the recovery key",
		in:      reflect.TypeFor[trivet.BackupRequest](), out: reflect.TypeFor[string](),
		outputs: "application/octet-stream"}
	about := rt
	rt.serve = func(w http.ResponseWriter, r *http.Request, c *caller) error { return h.backup(w, r, about, c) }
	h.add(rt)
}

// admitSchedule refuses more schedules of backups than a site may have.
func (h *Handler) admitSchedule(c *change, old, next *trivet.BackupSchedule) error {
	if old != nil || next == nil {
		return nil
	}
	all := h.Fleet.Schedules.In(c.tx).ListBy(state.BySchedule, state.IsSchedule)
	if len(all) >= trivet.MaxBackupSchedules {
		return &trivet.Error{Op: "create", Kind: "BackupSchedule", Name: next.Name, Hint: "delete one that is not needed",
			Err: fmt.Errorf("%w: a site has at most %d schedules of backups", trivet.ErrConflict,
				trivet.MaxBackupSchedules)}
	}
	return nil
}

// backup sends a backup. Its entry in the audit log is written before, and is part of it.
func (h *Handler) backup(w http.ResponseWriter, r *http.Request, rt route, c *caller) error {
	if name := r.PathValue("name"); name != trivet.SiteName {
		return &trivet.Error{Op: "back up", Kind: "Site", Name: fmt.Sprintf("%.*s", maxName, name),
			Err: trivet.ErrNotFound, Hint: "the only site is named " + trivet.SiteName}
	}
	body, err := h.readBody(w, r, 64<<10)
	if err != nil {
		return err
	}
	var req trivet.BackupRequest
	if len(body) > 0 {
		if err := apitypes.DecodeStrict(body, &req); err != nil {
			return err
		}
	}
	if _, err := h.Backups.Recipient(); err != nil {
		return err
	}
	own := store.BeforeCommit(r.Context(), func(*store.Tx) error { return nil })
	_, err = h.Fleet.Store.Update(own, func(tx *store.Tx) error { return appendAudit(tx, h.newAudit(r, rt, c)) })
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), maxBackupTime)
	defer cancel()
	b, err := h.Backups.Begin(ctx, req.Contents, "")
	if err != nil {
		return err
	}
	defer b.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(b.Size(), 10))
	if _, err := b.WriteTo(boundedWriter{ctx, &streamWriter{w, http.NewResponseController(w)}}); err != nil {
		h.Log.Warn("a backup was not received", "account", c.account, "request", requestID(r.Context()), "error", err)
		panic(http.ErrAbortHandler) // the client must not take what it has for the whole
	}
	return nil
}

// boundedWriter is a response that fails when a context has ended.
type boundedWriter struct {
	ctx context.Context
	to  *streamWriter
}

func (b boundedWriter) Write(data []byte) (int, error) {
	if err := context.Cause(b.ctx); err != nil {
		return 0, err
	}
	return b.to.Write(data)
}
