package api

import (
	"context"
	"fmt"
	"net/http"
	"reflect"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
	"github.com/trivet-project/trivet/internal/auth"
)

// upgradeRoutes serve the upgrade of the program of all heads.
func (h *Handler) upgradeRoutes() {
	add := func(verb, summary string, do func(ctx context.Context) (*trivet.Upgrade, error)) {
		h.add(route{method: "POST", path: "/v1/upgrades/" + trivet.UpgradeName + "/" + verb, verb: auth.Write,
			kind: "Upgrade", summary: summary, out: reflect.TypeFor[trivet.Upgrade](),
			serve: func(w http.ResponseWriter, r *http.Request, _ *caller) error {
				u, err := do(r.Context())
				if err != nil {
					return err
				}
				return respond(w, http.StatusOK, u)
			}})
	}
	h.add(route{method: "POST", path: "/v1/upgrades/" + trivet.UpgradeName + "/run", verb: auth.Write, kind: "Upgrade",
		summary: "Replace the program of all heads, one after the other; its content is uploaded before",
		in:      reflect.TypeFor[trivet.UpgradeSpec](), out: reflect.TypeFor[trivet.Upgrade](), serve: h.runUpgrade})
	pause := func(pause bool) func(context.Context) (*trivet.Upgrade, error) {
		return func(ctx context.Context) (*trivet.Upgrade, error) { return h.Heads.PauseUpgrade(ctx, pause) }
	}
	add("pause", "Let no further head start again with the new program", pause(true))
	add("resume", "Let a paused upgrade go on", pause(false))
	add("rollback", "Let the heads go back to their former program", h.Heads.RollbackUpgrade)
}

func (h *Handler) runUpgrade(w http.ResponseWriter, r *http.Request, _ *caller) error {
	body, err := h.readBody(w, r, 64<<10)
	if err != nil {
		return err
	}
	var spec trivet.UpgradeSpec
	if err := apitypes.DecodeStrict(body, &spec); err != nil {
		return err
	}
	asked := trivet.Upgrade{Meta: trivet.Meta{Name: trivet.UpgradeName}, Spec: spec}
	if err := asked.Validate(); err != nil {
		return err
	}
	for i, p := range spec.Programs {
		if err := h.hasBlob(r.Context(), fmt.Sprintf("spec.programs[%d].blob", i), p.Blob); err != nil {
			return err
		}
	}
	u, err := h.Heads.Upgrade(r.Context(), spec)
	if err != nil {
		return err
	}
	return respond(w, http.StatusOK, u)
}
