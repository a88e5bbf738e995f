package api

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/store"
)

// tokenRoutes issue and revoke tokens. A token's record is created by Trivet only, since no one may choose its hash.
func (h *Handler) tokenRoutes() {
	h.add(route{method: "POST", path: "/v1/tokens/issue", verb: auth.Reveal, kind: "Token",
		summary: "Issue an API token; it is returned only once",
		in:      reflect.TypeFor[trivet.TokenRequest](), out: reflect.TypeFor[trivet.TokenResponse](),
		status: http.StatusCreated, serve: h.issueToken})
	info, err := trivet.LookupKind("tokens")
	if err != nil {
		panic(err)
	}
	h.deleteRoute(info, "/v1/tokens/{name}", "Revoke a token")
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
	id, plain, hash := auth.NewToken()
	var expires time.Time
	_, err = h.Fleet.Store.Update(r.Context(), func(tx *store.Tx) error {
		if _, err := h.Fleet.Accounts.In(tx).Get(req.Account); err != nil {
			return err
		}
		site, err := h.Fleet.Sites.In(tx).Get(trivet.SiteName)
		if errors.Is(err, trivet.ErrNotFound) {
			site, err = &trivet.Site{}, nil
		}
		if err != nil {
			return err
		}
		if expires, err = tokenExpiry(req, site.Spec.TokenLifetimeOrDefault(), h.Now()); err != nil {
			return err
		}
		return h.Fleet.Tokens.In(tx).Create(&trivet.Token{
			Meta: trivet.Meta{Kind: "Token", Name: id}, Spec: trivet.TokenSpec{Account: req.Account, Hash: hash,
				Expires: expires},
		})
	})
	if err != nil {
		return err
	}
	return respond(w, http.StatusCreated, trivet.TokenResponse{Name: id, Token: plain.Reveal(), Expires: expires})
}

// tokenExpiry returns when a requested token expires; zero: never.
func tokenExpiry(req trivet.TokenRequest, lifetime trivet.Duration, now time.Time) (time.Time, error) {
	switch {
	case req.Never && !req.Expires.IsZero():
		return time.Time{}, &trivet.FieldError{Field: "never", Problem: "excludes expires; pass one of them"}
	case req.Never:
		return time.Time{}, nil
	case req.Expires.IsZero():
		return now.Add(lifetime.D()).UTC().Truncate(time.Second), nil
	case !req.Expires.After(now):
		return time.Time{}, &trivet.FieldError{Field: "expires", Problem: fmt.Sprintf(
			"is in the past; the head's time is %s", now.UTC().Format(time.RFC3339))}
	}
	return req.Expires, nil
}
