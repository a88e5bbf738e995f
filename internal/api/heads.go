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
	"github.com/trivet-project/trivet/internal/store"
)

// Lifetime of join tokens.
const (
	joinLifetime    = trivet.Duration(3600e9)
	maxJoinLifetime = 24 * joinLifetime
)

// headRoutes serve the membership of heads. The record of a head is written by Trivet only.
func (h *Handler) headRoutes() {
	h.add(route{method: "GET", path: "/v1/cluster", verb: auth.Read, kind: "Head",
		summary: "State of the heads as this one sees it",
		out:     reflect.TypeFor[trivet.Cluster](),
		serve: func(w http.ResponseWriter, r *http.Request, _ *caller) error {
			return respond(w, http.StatusOK, h.Cluster())
		}})
	h.add(route{method: "GET", path: "/v1/boot-ca", verb: auth.Read, kind: "Head",
		summary: "The CA of the boot servers, for the firmware of machines",
		out:     reflect.TypeFor[trivet.BootCA](),
		serve: func(w http.ResponseWriter, r *http.Request, _ *caller) error {
			return respond(w, http.StatusOK, h.bootCA())
		}})
	h.add(route{method: "GET", path: "/v1/ca", verb: auth.Read, kind: "Head",
		summary: "The CAs of the heads, for programs that verify them by certificate and not by pin",
		out:     reflect.TypeFor[trivet.CA](),
		serve: func(w http.ResponseWriter, r *http.Request, _ *caller) error {
			return respond(w, http.StatusOK, trivet.CA{Certificates: string(h.Keys.CA.PEM())})
		}})
	h.add(route{method: "POST", path: "/v1/heads/token", verb: auth.Reveal, kind: "Head",
		summary: "Issue a token that lets one head join; it is returned only once",
		in:      reflect.TypeFor[trivet.JoinTokenRequest](), out: reflect.TypeFor[trivet.JoinTokenResponse](),
		status: http.StatusCreated, serve: h.issueJoin})
	h.add(route{method: "POST", path: "/v1/heads/{name}/remove", verb: auth.Write, kind: "Head",
		summary: "Remove a head from the cluster",
		status:  http.StatusNoContent, serve: h.removeHead})
	h.add(route{method: "PUT", path: "/v1/heads/{name}/settings", verb: auth.Write, kind: "Head",
		summary: "Set the BMC of a head's host, and when the head takes over from the other one",
		in:      reflect.TypeFor[trivet.HeadSettings](), out: reflect.TypeFor[trivet.Head](), serve: h.setHead})
}

// bootCA returns the boot CA to enrol, which is the next one as soon as the record names it.
func (h *Handler) bootCA() trivet.BootCA {
	pin := ""
	if k, err := h.Heads.Keys.Get(trivet.BootCAKey); err == nil {
		pin = cmp.Or(k.Status.Next, k.Status.Active)
	}
	wanted, former, links := h.Keys.ExportBootCAs(pin)
	return trivet.BootCA{Certificate: string(wanted), Former: string(former), Links: string(links)}
}

func (h *Handler) setHead(w http.ResponseWriter, r *http.Request, _ *caller) error {
	body, err := h.readBody(w, r, 64<<10)
	if err != nil {
		return err
	}
	var settings trivet.HeadSettings
	if err := apitypes.DecodeStrict(body, &settings); err != nil {
		return err
	}
	check := func(tx *store.Tx, b *trivet.BMC) error { return h.checkBMCSecret(tx, nil, b) }
	head, err := h.Heads.Set(r.Context(), r.PathValue("name"), settings, check)
	if err != nil {
		return err
	}
	return respond(w, http.StatusOK, head)
}

func (h *Handler) issueJoin(w http.ResponseWriter, r *http.Request, _ *caller) error {
	body, err := h.readBody(w, r, 64<<10)
	if err != nil {
		return err
	}
	req := trivet.JoinTokenRequest{Lifetime: joinLifetime}
	if err := apitypes.DecodeStrict(body, &req); err != nil {
		return err
	}
	if req.Lifetime == 0 {
		req.Lifetime = joinLifetime
	}
	if req.Lifetime < 0 || req.Lifetime > maxJoinLifetime {
		problem := fmt.Sprintf("is %s; more than 0 and at most %s", req.Lifetime, maxJoinLifetime)
		return &trivet.FieldError{Field: "lifetime", Problem: problem}
	}
	if req.Role, err = h.joinRole(req); err != nil {
		return err
	}
	if req.Replace != "" { // the new head votes only once it has caught up
		if err := enoughLeft("replace", h.Cluster(), req.Replace); err != nil {
			return err
		}
	}
	expires := h.Now().Add(req.Lifetime.D())
	secret, err := h.Heads.IssueToken(r.Context(), req.Role, req.Replace, expires)
	if err != nil {
		return err
	}
	text := apitypes.JoinText(h.Keys.CA.Trust(), secret.Reveal(), req.Role)
	return respond(w, http.StatusCreated, trivet.JoinTokenResponse{Token: text, Expires: expires})
}

// joinRole returns the role of a join token. A head that replaces another one has that one's role.
func (h *Handler) joinRole(req trivet.JoinTokenRequest) (string, error) {
	if req.Replace == "" {
		return cmp.Or(req.Role, trivet.RoleVoter), nil
	}
	old, err := h.Fleet.Heads.Get(req.Replace)
	if err != nil {
		return "", err
	}
	role := old.Spec.RoleOrDefault()
	switch {
	case old.Status.State == trivet.HeadRemoved:
		return "", &trivet.Error{Op: "replace", Kind: "Head", Name: old.Name,
			Err:  fmt.Errorf("%w: it is removed already", trivet.ErrConflict),
			Hint: "let another one join: trivet head token"}
	case req.Role != "" && req.Role != role:
		problem := fmt.Sprintf("is %s, and %s is a %s", req.Role, old.Name, role)
		return "", &trivet.FieldError{Field: "role", Problem: problem}
	}
	return role, nil
}

func (h *Handler) removeHead(w http.ResponseWriter, r *http.Request, _ *caller) error {
	name := r.PathValue("name")
	if err := enoughLeft("remove", h.Cluster(), name); err != nil {
		return err
	}
	return done(w, h.Heads.Remove(r.Context(), name))
}

// enoughLeft refuses a removal after which most voters would be down: it would wait for them, and could not be
// undone.
func enoughLeft(op string, c trivet.Cluster, name string) error {
	var left, down []string
	isVoter := false
	for _, v := range c.Heads {
		switch {
		case v.Role == trivet.RoleStandby, !slices.Contains([]string{"leader", string(trivet.HeadMember), "down"}, v.State):
		case v.Name == name:
			isVoter = true
		default:
			left = append(left, v.Name)
			if v.State == "down" {
				down = append(down, v.Name)
			}
		}
	}
	if !isVoter || len(down) == 0 || 2*len(down) < len(left) {
		return nil
	}
	return &trivet.Error{Op: op, Kind: "Head", Name: name,
		Err: fmt.Errorf("%w: most of the remaining voters are down: %s of %s", trivet.ErrConflict,
			strings.Join(down, ", "), strings.Join(left, ", ")),
		Hint: "start " + down[0] + ", or remove that one instead"}
}
