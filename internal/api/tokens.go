package api

import (
	"fmt"
	"net/http"
	"reflect"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/store"
)

// tokenRoutes issue and revoke tokens. A token's record is written by Trivet only, since no one may choose its hash.
func (h *Handler) tokenRoutes() {
	h.add(route{method: "POST", path: "/v1/tokens/issue", verb: auth.Reveal, kind: "Token",
		summary: "Issue an API token; it is returned only once",
		in:      reflect.TypeFor[trivet.TokenRequest](), out: reflect.TypeFor[trivet.TokenResponse](),
		status: http.StatusCreated, serve: h.issueToken})
	h.add(route{method: "DELETE", path: "/v1/tokens/{name}", verb: auth.Write, kind: "Token", summary: "Revoke a token",
		status: http.StatusNoContent, serve: func(w http.ResponseWriter, r *http.Request, _ *caller) error {
			_, err := h.Fleet.Store.Update(r.Context(),
				func(tx *store.Tx) error { return tx.Delete("Token", r.PathValue("name")) })
			return done(w, err)
		}})
}

func (h *Handler) issueToken(w http.ResponseWriter, r *http.Request, _ *caller) error {
	body, err := h.readBody(w, r, 64<<10)
	if err != nil {
		return err
	}
	var req trivet.TokenRequest
	if err := apitypes.DecodeStrict(body, &req); err != nil {
		return err
	}
	if !req.Expires.IsZero() && !req.Expires.After(h.Now()) {
		return &trivet.FieldError{Field: "expires", Problem: fmt.Sprintf("is in the past; the head's time is %s",
			h.Now().UTC().Format("2006-01-02T15:04:05Z"))}
	}
	id, plain, hash := auth.NewToken()
	_, err = h.Fleet.Store.Update(r.Context(), func(tx *store.Tx) error {
		if _, err := h.Fleet.Accounts.In(tx).Get(req.Account); err != nil {
			return err
		}
		return h.Fleet.Tokens.In(tx).Create(&trivet.Token{
			Meta: trivet.Meta{Kind: "Token", Name: id}, Spec: trivet.TokenSpec{Account: req.Account, Hash: hash,
				Expires: req.Expires},
		})
	})
	if err != nil {
		return err
	}
	return respond(w, http.StatusCreated, trivet.TokenResponse{Name: id, Token: plain.Reveal()})
}
