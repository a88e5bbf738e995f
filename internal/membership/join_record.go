package membership

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// IssueToken creates a token that lets one head join in a role until it expires. replace is a head that is then
// removed, and whose role the new one gets; empty: none.
func (r *Records) IssueToken(ctx context.Context, role, replace string, expires time.Time) (auth.Secret, error) {
	id, plain, hash := auth.NewToken()
	t := &trivet.Token{Meta: trivet.Meta{Kind: "Token", Name: id},
		Spec: trivet.TokenSpec{Hash: hash, Join: role, Replace: replace, Expires: expires}}
	if err := t.Validate(); err != nil {
		return "", err
	}
	_, err := r.Store.Update(ctx, func(tx *store.Tx) error {
		if replace != "" {
			if _, err := r.removable(tx, replace); err != nil {
				return err
			}
		}
		if role == trivet.RoleStandby {
			if err := r.checkStandby(tx, replace); err != nil {
				return err
			}
		}
		return r.Tokens.In(tx).Create(t)
	})
	return plain, err
}

// checkStandby refuses a standby where another one stays, or where a head is of a release that would let it vote.
func (r *Records) checkStandby(tx *store.Tx, replaces string) error {
	if reached := tx.ClusterVersion(); trivet.StandbyRelease.Compare(reached) > 0 {
		return &trivet.Error{Op: "issue a join token", Hint: "upgrade all heads first",
			Err: fmt.Errorf("%w: a standby needs release %s on all heads, and the cluster is at %s",
				trivet.ErrConflict, trivet.StandbyRelease, reached)}
	}
	for _, listed := range r.Heads.In(tx).ListBy(state.ByMember, state.IsMember) {
		if listed.Spec.RoleOrDefault() == trivet.RoleStandby && listed.Name != replaces && !listed.Spec.Remove {
			return errStandby(listed.Name)
		}
	}
	return nil
}

func errStandby(name string) error {
	return &trivet.Error{Op: "join", Err: fmt.Errorf("%w: %s is the standby, and there is one at most",
		trivet.ErrConflict, name),
		Hint: "replace it: trivet head replace " + name}
}

// CheckJoin reports whether Join would accept the request now, and which head it would replace. It writes nothing.
func (r *Records) CheckJoin(ctx context.Context, req *JoinRequest) (replaces string, err error) {
	_, err = r.Store.Update(ctx, func(tx *store.Tx) error {
		t, err := r.joinToken(tx, req)
		if err == nil {
			replaces = t.Spec.Replace
		}
		return err
	})
	return replaces, err
}

// Join uses a token and creates the record of the new head, with a new name, in state joining. A retry of the same
// request returns the same head.
func (r *Records) Join(ctx context.Context, req *JoinRequest) (head *trivet.Head, err error) {
	_, err = r.Store.Update(ctx, func(tx *store.Tx) error {
		t, err := r.joinToken(tx, req)
		if err != nil {
			return err
		}
		if t.Spec.Used == req.ID {
			if head, err = r.joined(tx, req); err == nil {
				err = errUnchanged
			}
			return err
		}
		head, err = r.createHead(tx, t, req)
		return err
	})
	if err != nil && !errors.Is(err, errUnchanged) {
		return nil, fmt.Errorf("join: %w", err)
	}
	return head, nil
}

// createHead writes the record of a head that joins. The head that it replaces is removed when the new one's member
// is added.
func (r *Records) createHead(tx *store.Tx, t *trivet.Token, req *JoinRequest) (*trivet.Head, error) {
	name, err := r.nextName(tx)
	if err != nil {
		return nil, err
	}
	t.Spec.Used = req.ID
	head := &trivet.Head{
		Meta: trivet.Meta{Kind: "Head", Name: name}, Spec: trivet.HeadSpec{Role: t.Spec.Join},
		Status: trivet.HeadStatus{State: trivet.HeadJoining, Join: req.ID, Peer: req.Peer, Replaces: t.Spec.Replace},
	}
	if req.machine != nil {
		return head, r.createOnMachine(tx, head, req)
	}
	return head, errors.Join(r.Tokens.In(tx).Put(t), r.Heads.In(tx).Create(head))
}

// hintNewToken is the hint for a token that cannot be used.
const hintNewToken = "issue another one on a member: trivet head token"

// storedToken returns the record of the request's token.
func (r *Records) storedToken(tx *store.Tx, req *JoinRequest) (*trivet.Token, error) {
	id, err := auth.ParseToken(req.Token)
	if err != nil {
		return nil, err
	}
	t, err := r.Tokens.In(tx).Get(id)
	switch {
	case errors.Is(err, trivet.ErrNotFound):
		return nil, errToken("issue one on a head of this cluster: trivet head token", trivet.ErrUnauthenticated,
			"this cluster has not issued it")
	case err != nil:
		return nil, err
	}
	if err := auth.CheckToken(req.Token, t.Spec.Hash); err != nil {
		return nil, &trivet.Error{Op: "use join token", Err: err, Hint: hintNewToken}
	}
	return t, nil
}

// joinToken returns the token's record, if the request may use it. That of a machine is made of other records.
func (r *Records) joinToken(tx *store.Tx, req *JoinRequest) (t *trivet.Token, err error) {
	if req.machine != nil {
		t, err = r.tokenOfMachine(tx, req)
	} else {
		t, err = r.storedToken(tx, req)
	}
	if err != nil {
		return nil, err
	}
	switch {
	case t.Spec.Join == "":
		return nil, errToken(hintNewToken, trivet.ErrForbidden, "it is an API token")
	case t.Spec.Join != req.Role:
		return nil, errToken("pass the whole token, as trivet head token printed it", trivet.ErrForbidden,
			"it is for a %s, not for a %.20q", t.Spec.Join, req.Role)
	case t.Spec.Used != "" && t.Spec.Used != req.ID:
		return nil, errToken(hintNewToken, trivet.ErrForbidden, "it was used")
	case t.Spec.Used == "" && !r.now().Before(t.Spec.Expires): // retries of a request that used it in time succeed
		return nil, errToken(hintNewToken, trivet.ErrForbidden, "it has expired")
	}
	if t.Spec.Used == "" && t.Spec.Replace != "" { // it may have been issued long ago
		_, err = r.removable(tx, t.Spec.Replace)
	}
	if err == nil && t.Spec.Used == "" && t.Spec.Join == trivet.RoleStandby {
		err = r.checkStandby(tx, t.Spec.Replace)
	}
	return t, err
}

func errToken(hint string, kind error, format string, args ...any) error {
	return &trivet.Error{Op: "use join token", Err: fmt.Errorf("%w: %s", kind, fmt.Sprintf(format, args...)),
		Hint: hint}
}

// joined finds the head that joined by this request.
func (r *Records) joined(tx *store.Tx, req *JoinRequest) (*trivet.Head, error) {
	for _, listed := range r.Heads.In(tx).ListBy(state.ByJoin, req.ID) {
		h, err := r.Heads.In(tx).Get(listed.Name)
		switch {
		case err != nil:
			return nil, err
		case h.Spec.Remove || h.Status.State == trivet.HeadRemoved:
			return nil, errToken(hintNewToken, trivet.ErrForbidden, "%s joined by it, and was removed since", h.Name)
		case h.Status.Peer != req.Peer:
			return nil, errToken("start it with the --api and --advertise that it had, or use a token of "+
				"'trivet head replace "+h.Name+"'", trivet.ErrExists, "%s joined by it as %s, not as %s",
				h.Name, h.Status.Peer, req.Peer)
		default:
			return h, nil
		}
	}
	return nil, fmt.Errorf("%w: the head of this request was deleted", trivet.ErrNotFound)
}

// nextName returns a name that no head has had.
func (r *Records) nextName(tx *store.Tx) (string, error) {
	site, err := r.Sites.In(tx).Get(trivet.SiteName)
	if errors.Is(err, trivet.ErrNotFound) {
		site, err = &trivet.Site{Meta: trivet.Meta{Kind: "Site", Name: trivet.SiteName}}, nil
	}
	if err != nil {
		return "", err
	}
	for {
		name := headName(site.Status.HeadNames)
		site.Status.HeadNames++
		_, err := r.Heads.In(tx).Get(name)
		if errors.Is(err, trivet.ErrNotFound) {
			return name, r.Sites.In(tx).Put(site)
		}
		if err != nil {
			return "", err
		}
	}
}
