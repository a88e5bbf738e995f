package api

import (
	"fmt"
	"net/http"
	"reflect"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/wire"
)

// Life of join tokens.
const (
	joinLife    = trivet.Duration(3600e9)
	maxJoinLife = 24 * joinLife
)

// headRoutes let heads in and out. A head's record is written by Trivet only: what it says must be so.
func (h *Handler) headRoutes() {
	h.add(route{method: "POST", path: "/v1/heads/token", verb: auth.Reveal, kind: "Head", summary: "Issue a token that lets one head join, shown this once",
		in: reflect.TypeFor[wire.IssueJoin](), out: reflect.TypeFor[wire.IssuedJoin](), status: http.StatusCreated, serve: h.issueJoin})
	h.add(route{method: "POST", path: "/v1/heads/{name}/remove", verb: auth.Write, kind: "Head", summary: "Take a head out of the cluster for good",
		status: http.StatusNoContent, serve: h.removeHead})
}

func (h *Handler) issueJoin(w http.ResponseWriter, r *http.Request, _ *caller) error {
	body, err := readBody(w, r, 64<<10)
	if err != nil {
		return err
	}
	ask := wire.IssueJoin{Role: trivet.RoleVoter, Life: joinLife}
	if err := wire.DecodeStrict(body, &ask); err != nil {
		return err
	}
	if ask.Life <= 0 || ask.Life > maxJoinLife {
		return &trivet.FieldError{Field: "life", Problem: fmt.Sprintf("is %s; more than 0 and at most %s", ask.Life, maxJoinLife)}
	}
	expires := h.Now().Add(ask.Life.D())
	secret, err := h.Fleet.IssueJoin(r.Context(), ask.Role, expires)
	if err != nil {
		return err
	}
	return answer(w, http.StatusCreated, wire.IssuedJoin{Token: wire.JoinText(h.Keys.CA.Pin(), secret.Reveal()), Expires: expires})
}

// removeHead refuses to take the last voter, whose data would be all there is.
func (h *Handler) removeHead(w http.ResponseWriter, r *http.Request, _ *caller) error {
	name := r.PathValue("name")
	voters := 0
	for rec := range h.Fleet.Heads.PeekAll() {
		if rec.Name != name && rec.Spec.Role != trivet.RoleWitness && rec.Status.State == trivet.HeadMember && !rec.Spec.Remove {
			voters++
		}
	}
	if voters == 0 {
		return &trivet.Error{Op: "remove", Kind: "Head", Name: name, Err: fmt.Errorf("%w: no other full head is a member", trivet.ErrConflict),
			Hint: "let another one join first: trivet head token"}
	}
	err := h.Fleet.Head(r.Context(), name, func(rec *trivet.Head) bool {
		changed := !rec.Spec.Remove
		rec.Spec.Remove = true
		return changed
	})
	return done(w, err)
}
