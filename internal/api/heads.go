package api

import (
	"cmp"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
	"github.com/trivet-project/trivet/internal/auth"
)

// Life of join tokens.
const (
	joinLife    = trivet.Duration(3600e9)
	maxJoinLife = 24 * joinLife
)

// headRoutes let heads in and out. A head's record is written by Trivet only: what it says must be so.
func (h *Handler) headRoutes() {
	h.add(route{method: "GET", path: "/v1/cluster", verb: auth.Read, kind: "Head", summary: "The heads as this one sees them now",
		out: reflect.TypeFor[trivet.Cluster](), serve: func(w http.ResponseWriter, r *http.Request, _ *caller) error {
			return answer(w, http.StatusOK, h.Cluster())
		}})
	h.add(route{method: "POST", path: "/v1/heads/token", verb: auth.Reveal, kind: "Head", summary: "Issue a token that lets one head join, shown this once",
		in: reflect.TypeFor[trivet.JoinTokenRequest](), out: reflect.TypeFor[trivet.JoinTokenResponse](), status: http.StatusCreated, serve: h.issueJoin})
	h.add(route{method: "POST", path: "/v1/heads/{name}/remove", verb: auth.Write, kind: "Head", summary: "Take a head out of the cluster for good",
		status: http.StatusNoContent, serve: h.removeHead})
}

func (h *Handler) issueJoin(w http.ResponseWriter, r *http.Request, _ *caller) error {
	body, err := readBody(w, r, 64<<10)
	if err != nil {
		return err
	}
	ask := trivet.JoinTokenRequest{Lifetime: joinLife}
	if err := apitypes.DecodeStrict(body, &ask); err != nil {
		return err
	}
	if ask.Lifetime == 0 {
		ask.Lifetime = joinLife
	}
	if ask.Lifetime < 0 || ask.Lifetime > maxJoinLife {
		return &trivet.FieldError{Field: "lifetime", Problem: fmt.Sprintf("is %s; more than 0 and at most %s", ask.Lifetime, maxJoinLife)}
	}
	if ask.Role, err = h.joinRole(ask); err != nil {
		return err
	}
	expires := h.Now().Add(ask.Lifetime.D())
	secret, err := h.Heads.IssueToken(r.Context(), ask.Role, ask.Replace, expires)
	if err != nil {
		return err
	}
	text := apitypes.JoinText(h.Keys.CA.Pin(), secret.Reveal(), ask.Role)
	return answer(w, http.StatusCreated, trivet.JoinTokenResponse{Token: text, Expires: expires})
}

// joinRole is the role that a token is for: one that replaces a head takes that one's.
func (h *Handler) joinRole(ask trivet.JoinTokenRequest) (string, error) {
	if ask.Replace == "" {
		return cmp.Or(ask.Role, trivet.RoleVoter), nil
	}
	old, err := h.Fleet.Heads.Get(ask.Replace)
	if err != nil {
		return "", err
	}
	role := cmp.Or(old.Spec.Role, trivet.RoleVoter)
	switch {
	case old.Status.State == trivet.HeadRemoved:
		return "", &trivet.Error{Op: "replace", Kind: "Head", Name: old.Name, Err: fmt.Errorf("%w: it is removed already", trivet.ErrConflict),
			Hint: "let another one join: trivet head token"}
	case ask.Role != "" && ask.Role != role:
		return "", &trivet.FieldError{Field: "role", Problem: fmt.Sprintf("is %s, and %s is a %s", ask.Role, old.Name, role)}
	}
	return role, nil
}

func (h *Handler) removeHead(w http.ResponseWriter, r *http.Request, _ *caller) error {
	name := r.PathValue("name")
	if err := enoughLeft(h.Cluster(), name); err != nil {
		return err
	}
	return done(w, h.Heads.Remove(r.Context(), name))
}

// enoughLeft refuses a removal after which most of those that count would be down: it would wait for them, and could not be
// taken back.
func enoughLeft(c trivet.Cluster, name string) error {
	var left, down []string
	counts := false
	for _, v := range c.Heads {
		switch {
		case !slices.Contains([]string{"leader", string(trivet.HeadMember), "down"}, v.State):
		case v.Name == name:
			counts = true
		default:
			left = append(left, v.Name)
			if v.State == "down" {
				down = append(down, v.Name)
			}
		}
	}
	if !counts || len(down) == 0 || 2*len(down) < len(left) {
		return nil
	}
	return &trivet.Error{Op: "remove", Kind: "Head", Name: name,
		Err:  fmt.Errorf("%w: most of those that would be left are down: %s of %s", trivet.ErrConflict, strings.Join(down, ", "), strings.Join(left, ", ")),
		Hint: "start " + down[0] + ", or remove that one instead"}
}
