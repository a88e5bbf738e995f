package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/store"
)

// Joining is what a head says that wants to join.
type Joining struct {
	Token string // the text that an operator gave it
	Role  string // that it takes the token to be for
	ID    string // names the request; said again after a lost answer, it gives the same place
	Peer  string // URL where other heads will reach it
}

// IssueJoin makes a token that lets one head join in a role, until it expires. replace is a head that is then removed, and
// whose role the new one takes; empty: none.
func (f *Fleet) IssueJoin(ctx context.Context, role, replace string, expires time.Time) (auth.Secret, error) {
	id, plain, hash := auth.NewToken()
	t := &trivet.Token{Meta: trivet.Meta{Kind: "Token", Name: id}, Spec: trivet.TokenSpec{Hash: hash, Join: role, Replace: replace, Expires: expires}}
	if err := t.Validate(); err != nil {
		return "", err
	}
	_, err := f.Store.Update(ctx, func(tx *store.Tx) error {
		if replace != "" {
			if _, err := f.dispensable(tx, replace); err != nil {
				return err
			}
		}
		return f.Tokens.In(tx).Create(t)
	})
	return plain, err
}

// MayJoin says whether Join would give a place now, and which head it would replace, and spends nothing.
func (f *Fleet) MayJoin(ctx context.Context, j Joining) (replaces string, err error) {
	id, err := auth.ParseToken(j.Token)
	if err != nil {
		return "", err
	}
	_, err = f.Store.Update(ctx, func(tx *store.Tx) error {
		t, err := f.joinToken(tx, id, j)
		if err == nil {
			replaces = t.Spec.Replace
		}
		return err
	})
	return replaces, err
}

// Join spends a token and gives the head that its bearer is from now on: a new name and role, in state joining.
func (f *Fleet) Join(ctx context.Context, j Joining) (head *trivet.Head, err error) {
	id, err := auth.ParseToken(j.Token)
	if err != nil {
		return nil, err
	}
	_, err = f.Store.Update(ctx, func(tx *store.Tx) error {
		t, err := f.joinToken(tx, id, j)
		if err != nil {
			return err
		}
		if t.Spec.Used == j.ID {
			head, err = f.joined(j)
			return errors.Join(err, errUnchanged)
		}
		head, err = f.newHead(tx, t, j)
		return err
	})
	if err != nil && !errors.Is(err, errUnchanged) {
		return nil, fmt.Errorf("join: %w", err)
	}
	return head, nil
}

// newHead writes the record of a head that joins. The one that it replaces stays until it is the new one's turn.
func (f *Fleet) newHead(tx *store.Tx, t *trivet.Token, j Joining) (*trivet.Head, error) {
	name, err := f.nextHead(tx)
	if err != nil {
		return nil, err
	}
	t.Spec.Used = j.ID
	head := &trivet.Head{
		Meta: trivet.Meta{Kind: "Head", Name: name}, Spec: trivet.HeadSpec{Role: t.Spec.Join},
		Status: trivet.HeadStatus{State: trivet.HeadJoining, Join: j.ID, Peer: j.Peer, Replaces: t.Spec.Replace},
	}
	return head, errors.Join(f.Tokens.In(tx).Put(t), f.Heads.In(tx).Create(head))
}

const issueAnother = "issue another one on a member: trivet head token"

func (f *Fleet) joinToken(tx *store.Tx, id string, j Joining) (*trivet.Token, error) {
	t, err := f.Tokens.In(tx).Get(id)
	switch {
	case errors.Is(err, trivet.ErrNotFound):
		return nil, &trivet.Error{Op: "use join token", Err: fmt.Errorf("%w: this cluster has not issued it", trivet.ErrUnauthenticated),
			Hint: "issue one at a head of this cluster: trivet head token"}
	case err != nil:
		return nil, err
	}
	if err := auth.CheckToken(j.Token, t.Spec.Hash); err != nil {
		return nil, &trivet.Error{Op: "use join token", Err: err, Hint: issueAnother}
	}
	switch {
	case t.Spec.Join == "":
		return nil, &trivet.Error{Op: "use join token", Err: fmt.Errorf("%w: it is an API token", trivet.ErrForbidden), Hint: issueAnother}
	case t.Spec.Join != j.Role:
		return nil, &trivet.Error{Op: "use join token", Err: fmt.Errorf("%w: it is for a %s, not for a %.20q", trivet.ErrForbidden, t.Spec.Join, j.Role),
			Hint: "give the whole token, as trivet head token printed it"}
	case t.Spec.Used != "" && t.Spec.Used != j.ID:
		return nil, &trivet.Error{Op: "use join token", Err: fmt.Errorf("%w: it was used", trivet.ErrForbidden), Hint: issueAnother}
	case t.Spec.Used == "" && !f.now().Before(t.Spec.Expires): // one that was used in time gives the same place again
		return nil, &trivet.Error{Op: "use join token", Err: fmt.Errorf("%w: it has expired", trivet.ErrForbidden), Hint: issueAnother}
	}
	if t.Spec.Used == "" && t.Spec.Replace != "" { // it may have been issued long ago
		_, err = f.dispensable(tx, t.Spec.Replace)
	}
	return t, err
}

// joined finds the head that joined by a request.
func (f *Fleet) joined(j Joining) (*trivet.Head, error) {
	for _, h := range f.Heads.List() {
		switch {
		case h.Status.Join != j.ID:
		case h.Spec.Remove || h.Status.State == trivet.HeadRemoved:
			return nil, &trivet.Error{Op: "use join token", Hint: issueAnother,
				Err: fmt.Errorf("%w: %s joined by it, and was removed since", trivet.ErrForbidden, h.Name)}
		case h.Status.Peer != j.Peer:
			return nil, &trivet.Error{Op: "use join token", Err: fmt.Errorf("%w: %s joined by it as %s, not as %s", trivet.ErrExists, h.Name, h.Status.Peer, j.Peer),
				Hint: "start it with the --api and --advertise that it had, or use a token of 'trivet head replace " + h.Name + "'"}
		default:
			return h, nil
		}
	}
	return nil, fmt.Errorf("%w: the head of this request was deleted", trivet.ErrNotFound)
}

// nextHead gives a name that no head has had.
func (f *Fleet) nextHead(tx *store.Tx) (string, error) {
	site, err := f.Sites.In(tx).Get(trivet.SiteName)
	if errors.Is(err, trivet.ErrNotFound) {
		site, err = &trivet.Site{Meta: trivet.Meta{Kind: "Site", Name: trivet.SiteName}}, nil
	}
	if err != nil {
		return "", err
	}
	for {
		name := fmt.Sprintf("head%d", site.Status.HeadNames)
		site.Status.HeadNames++
		_, err := f.Heads.In(tx).Get(name)
		if errors.Is(err, trivet.ErrNotFound) {
			return name, f.Sites.In(tx).Put(site)
		}
		if err != nil {
			return "", err
		}
	}
}

// Head changes one head's record in one transaction. do says whether there is anything to write.
func (f *Fleet) Head(ctx context.Context, name string, do func(h *trivet.Head) (changed bool)) error {
	return f.update(ctx, func(tx *store.Tx) error {
		h, err := f.Heads.In(tx).Get(name)
		if err != nil {
			return err
		}
		if !do(h) {
			return errUnchanged
		}
		return f.Heads.In(tx).Put(h)
	})
}
