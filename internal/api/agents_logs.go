package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/trivet-project/trivet"
)

func (h *Handler) agentLogs(w http.ResponseWriter, r *http.Request, _ *caller) error {
	w.(*recorder).quiet = true
	agent, body, err := h.agent(w, r)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	run, err := h.runOf(r.Context(), trivet.Resolve("", q.Get("workflow")))
	if err != nil {
		return err
	}
	m, err := h.machineOfAgent(agent, run.Spec.Machine)
	if err == nil && run.Spec.MachineUID != m.UID {
		err = fmt.Errorf("log of %s: %w: it is of an earlier machine of this name", run.ShortName(), trivet.ErrForbidden)
	}
	if err != nil {
		return err
	}
	action := run.Spec.Action(q.Get("action"))
	if action == nil {
		return fmt.Errorf("log of %s: %w: it has no action %q", run.ShortName(), trivet.ErrInvalid, q.Get("action"))
	}
	key, offset, err := logPlace(q)
	if err != nil {
		return fmt.Errorf("log of %s: %w: %w", run.ShortName(), trivet.ErrInvalid, err)
	}
	if key.Attempt > action.Retries+1 {
		return fmt.Errorf("log of %s: %w: action %s has no attempt %d", run.ShortName(), trivet.ErrInvalid, action.Name,
			key.Attempt)
	}
	if _, err := h.machineOf(r.Context(), m.Name, key.Epoch); err != nil {
		return err
	}
	if key.Epoch <= run.Spec.Epoch {
		return fmt.Errorf("log of %s: %w: it has no epoch %d", run.ShortName(), trivet.ErrInvalid, key.Epoch)
	}
	if err := h.Logs.Store.Append(run.FullName(), key, offset, body); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// logPlace returns where a piece of a log belongs.
func logPlace(q url.Values) (key trivet.LogKey, offset int64, err error) {
	epoch, err1 := strconv.ParseInt(q.Get("epoch"), 10, 64)
	attempt, err2 := strconv.Atoi(q.Get("attempt"))
	offset, err3 := strconv.ParseInt(q.Get("offset"), 10, 64)
	return trivet.LogKey{Action: q.Get("action"), Epoch: epoch, Attempt: attempt}, offset, errors.Join(err1, err2, err3)
}

// runOf returns the workflow of a full name, whose log is sent. Another head may have just created it.
func (h *Handler) runOf(ctx context.Context, name string) (*trivet.Workflow, error) {
	run, err := h.Fleet.Workflows.Find(ctx, name)
	if errors.Is(err, trivet.ErrNotFound) {
		if err := h.fresh(ctx); err != nil {
			return nil, err
		}
		run, err = h.Fleet.Workflows.Find(ctx, name)
	}
	return run, err
}
