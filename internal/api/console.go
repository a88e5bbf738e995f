package api

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"strconv"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
	"github.com/trivet-project/trivet/internal/auth"
)

// consoleRoutes are the serial consoles of machines. A console shows and takes passwords, so each needs the right to
// change machines; the audit log has who opened one.
func (h *Handler) consoleRoutes() {
	const path = "/v1/machines/{name}/console"
	h.add(route{method: "POST", path: path, verb: auth.Write, kind: "Machine", outside: true,
		summary: "Open the serial console of a machine, or join the session that is open",
		in:      reflect.TypeFor[trivet.ConsoleRequest](), out: reflect.TypeFor[trivet.ConsoleSession](),
		serve: h.openConsole})
	h.add(route{method: "GET", path: path, verb: auth.Write, kind: "Machine",
		summary: "Wait some seconds for what the machine writes to its console",
		query:   []string{"session: that was opened", "from: offset of the text: next of the last read"},
		out:     reflect.TypeFor[trivet.ConsoleText](), serve: h.readConsole})
	h.add(route{method: "POST", path: path + "/input", verb: auth.Write, kind: "Machine",
		summary: "Type on the console of a machine", status: http.StatusNoContent,
		in: reflect.TypeFor[trivet.ConsoleInput](), serve: h.typeOnConsole})
}

func (h *Handler) openConsole(w http.ResponseWriter, r *http.Request, _ *caller) error {
	var req trivet.ConsoleRequest
	if err := h.consoleBody(w, r, &req); err != nil {
		return err
	}
	s, err := h.Consoles.Open(r.Context(), r.PathValue("name"), req)
	if err != nil {
		return err
	}
	return respond(w, http.StatusOK, s)
}

func (h *Handler) readConsole(w http.ResponseWriter, r *http.Request, c *caller) error {
	w.(*recorder).quiet = true
	q := r.URL.Query()
	from, err := strconv.ParseInt(q.Get("from"), 10, 64)
	if err != nil || from < 0 {
		return &trivet.FieldError{Field: "from", Problem: "must be an offset"}
	}
	leave, err := h.enterWatch(r)
	if err != nil {
		return err
	}
	defer leave()
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	defer context.AfterFunc(h.stopping, stop)()
	text, err := h.Consoles.Read(ctx, r.PathValue("name"), q.Get("session"), from)
	if err == nil {
		err = h.current(c) // after the wait
	}
	if err == nil && h.stopping.Err() != nil && len(text.Text) == 0 {
		err = fmt.Errorf("read console: %w: this head is about to stop", trivet.ErrUnavailable)
	}
	if err != nil {
		return err
	}
	return respond(w, http.StatusOK, text)
}

func (h *Handler) typeOnConsole(w http.ResponseWriter, r *http.Request, _ *caller) error {
	w.(*recorder).quiet = true
	var in trivet.ConsoleInput
	if err := h.consoleBody(w, r, &in); err != nil {
		return err
	}
	return done(w, h.Consoles.Write(r.Context(), r.PathValue("name"), in))
}

// consoleBody reads a request about a machine that exists.
func (h *Handler) consoleBody(w http.ResponseWriter, r *http.Request, into any) error {
	body, err := h.readBody(w, r, 2*trivet.MaxConsoleInput)
	if err != nil {
		return err
	}
	if err := apitypes.DecodeStrict(body, into); err != nil {
		return err
	}
	_, err = h.Fleet.Machines.GetShared(r.PathValue("name"))
	return err
}
