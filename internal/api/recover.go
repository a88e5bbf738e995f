package api

import (
	"net/http"
	"reflect"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
	"github.com/trivet-project/trivet/internal/auth"
)

// recoverRoutes are what operators decide after a recovery of the cluster.
func (h *Handler) recoverRoutes() {
	h.add(route{method: "POST", path: inProject + "provisions/{name}/resolve", verb: auth.Write, kind: "Provision",
		status:  http.StatusNoContent,
		summary: "Decide about a provision after a recovery of the cluster: continue, cancel, or a machine has it installed",
		in:      reflect.TypeFor[trivet.ResolveRequest](), serve: h.resolve})
}

func (h *Handler) resolve(w http.ResponseWriter, r *http.Request, c *caller) error {
	body, err := h.readBody(w, r, 4<<10)
	if err != nil {
		return err
	}
	var req trivet.ResolveRequest
	if err := apitypes.DecodeStrict(body, &req); err != nil {
		return err
	}
	if err := req.Validate(); err != nil {
		return err
	}
	name, err := fullName(r)
	if err != nil {
		return err
	}
	return done(w, h.Fleet.Resolve(r.Context(), name, req, c.account))
}
