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

// tokenRoutes issue and revoke. A token's record is written by Trivet only, since its hash is not a person's to choose.
func (h *Handler) tokenRoutes() {
	h.add(route{method: "POST", path: "/v1/tokens/issue", verb: auth.Reveal, kind: "Token", summary: "Issue an API token, shown this once",
		in: reflect.TypeFor[trivet.TokenRequest](), out: reflect.TypeFor[trivet.TokenResponse](), status: http.StatusCreated, serve: h.issueToken})
	h.add(route{method: "DELETE", path: "/v1/tokens/{name}", verb: auth.Write, kind: "Token", summary: "Make a token invalid at once",
		status: http.StatusNoContent, serve: func(w http.ResponseWriter, r *http.Request, _ *caller) error {
			_, err := h.Fleet.Store.Update(r.Context(), func(tx *store.Tx) error { return tx.Delete("Token", r.PathValue("name")) })
			return done(w, err)
		}})
}

func (h *Handler) issueToken(w http.ResponseWriter, r *http.Request, _ *caller) error {
	body, err := readBody(w, r, 64<<10)
	if err != nil {
		return err
	}
	var ask trivet.TokenRequest
	if err := apitypes.DecodeStrict(body, &ask); err != nil {
		return err
	}
	if !ask.Expires.IsZero() && !ask.Expires.After(h.Now()) {
		return &trivet.FieldError{Field: "expires", Problem: fmt.Sprintf("is over already; it is %s here", h.Now().UTC().Format("2006-01-02T15:04:05Z"))}
	}
	id, plain, hash := auth.NewToken()
	_, err = h.Fleet.Store.Update(r.Context(), func(tx *store.Tx) error {
		if _, err := h.Fleet.Accounts.In(tx).Get(ask.Account); err != nil {
			return err
		}
		return h.Fleet.Tokens.In(tx).Create(&trivet.Token{
			Meta: trivet.Meta{Kind: "Token", Name: id}, Spec: trivet.TokenSpec{Account: ask.Account, Hash: hash, Expires: ask.Expires},
		})
	})
	if err != nil {
		return err
	}
	return answer(w, http.StatusCreated, trivet.TokenResponse{Name: id, Token: plain.Reveal()})
}
