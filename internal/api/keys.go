package api

import (
	"net/http"
	"reflect"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
	"github.com/trivet-project/trivet/internal/auth"
)

// keyRoutes serve the rotation of keys. No key is in a record or in a response.
func (h *Handler) keyRoutes() {
	h.add(route{method: "POST", path: "/v1/keys/{name}/rotate", verb: auth.Write, kind: "Key",
		summary: "Rotate a key of the cluster; while a rotation is in progress, that is the one",
		in:      reflect.TypeFor[trivet.RotateRequest](), out: reflect.TypeFor[trivet.Key](),
		serve: func(w http.ResponseWriter, r *http.Request, _ *caller) error {
			body, err := h.readBody(w, r, 4<<10)
			if err != nil {
				return err
			}
			var req trivet.RotateRequest
			if len(body) > 0 {
				if err := apitypes.DecodeStrict(body, &req); err != nil {
					return err
				}
			}
			key, err := h.Heads.RotateKey(r.Context(), r.PathValue("name"), req.Grace)
			if err != nil {
				return err
			}
			return respond(w, http.StatusOK, key)
		}})
	h.add(route{method: "POST", path: "/v1/keys/{name}/drop-former", verb: auth.Write, kind: "Key",
		summary: "Stop sending the certificates of former boot CAs, which firmware may trust",
		out:     reflect.TypeFor[trivet.Key](),
		serve: func(w http.ResponseWriter, r *http.Request, _ *caller) error {
			key, err := h.Heads.DropFormer(r.Context(), r.PathValue("name"))
			if err != nil {
				return err
			}
			return respond(w, http.StatusOK, key)
		}})
}
