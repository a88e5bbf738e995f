package fleet

import (
	"context"
	"fmt"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// RemoveHead begins to take a head out of the cluster for good. It fails with ErrConflict where that is the last full head.
func (f *Fleet) RemoveHead(ctx context.Context, name string) error {
	return f.update(ctx, func(tx *store.Tx) error {
		h, err := f.dispensable(tx, name)
		switch {
		case err != nil:
			return err
		case h.Spec.Remove || h.Status.State == trivet.HeadRemoved:
			return errUnchanged
		}
		h.Spec.Remove = true
		return f.Heads.In(tx).Put(h)
	})
}

// dispensable gets a head that may be taken out, as another full one counts and stays. That one's record is compared too: of
// two removals at once that rest on each other, the second finds the first.
func (f *Fleet) dispensable(tx *store.Tx, name string) (*trivet.Head, error) {
	heads := f.Heads.In(tx)
	h, err := heads.Get(name)
	if err != nil {
		return nil, err
	}
	for seen := range heads.AllShared() {
		if seen.Name == name || seen.Status.State == trivet.HeadRemoved { // which is for good
			continue
		}
		other, err := heads.Get(seen.Name)
		if err != nil {
			return nil, err
		}
		if other.Serves() && other.Status.State == trivet.HeadMember {
			return h, nil
		}
	}
	return nil, LastHead(name)
}

// LastHead is the error of who would take the last full head out: it has all content and keys, which no witness has.
func LastHead(name string) error {
	return &trivet.Error{Op: "take out", Kind: "Head", Name: name, Err: fmt.Errorf("%w: no other full head is a member that stays", trivet.ErrConflict),
		Hint: "let another one join first, by 'trivet head token', and wait until it counts: trivet head list"}
}
