package keys

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/keyring"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// Member is this head's member of the store.
type Member interface {
	Compact(ctx context.Context, revision int64) error
	Commit()
}

// StoreValues is the values of the store. Every transaction compares the ID of their key.
type StoreValues struct {
	Store  *store.Store
	Member Member
}

// Active implements [Contents].
func (v StoreValues) Active() (string, error) {
	id, err := v.Store.Active()
	return id.String(), err
}

// Activate implements [Contents].
func (v StoreValues) Activate(tx *store.Tx, id string) error {
	key, err := keyring.ParseID(id)
	if err != nil {
		return err
	}
	return tx.SetActive(key)
}

// Reseal implements [Contents].
func (v StoreValues) Reseal(ctx context.Context, _, after string) (store.ResealPage, error) {
	return v.Store.Reseal(ctx, after)
}

// EndReseal drops what was replaced before a revision from the history.
func (v StoreValues) EndReseal(ctx context.Context, revision int64) error {
	return v.Member.Compact(ctx, revision)
}

// Drops implements [Contents]: none of the values of this head's copy is encrypted with the key. Afterwards, nor is
// what its member has on the disk.
func (v StoreValues) Drops(id string) error {
	key, err := keyring.ParseID(id)
	if err != nil {
		return err
	}
	if n := v.Store.ValuesUnder(key); n > 0 {
		return fmt.Errorf("%w: %d values are encrypted with it", trivet.ErrConflict, n)
	}
	v.Member.Commit()
	return nil
}

// Sealer opens and seals the values of secrets.
type Sealer interface {
	Reseal(secret *trivet.Secret, field, text, key string) (string, error)
	SealedWith(text string) (key string)
}

// Secrets is the values of secrets. Each write of one compares the record of the key.
type Secrets struct {
	Tables *state.Tables
	Sealer Sealer
	Ring   Ring
}

// secretsPage bounds the secrets of a page, and resealsPage those that are sealed again, in one transaction.
const secretsPage, resealsPage = 500, 4

// Active implements [Contents].
func (s Secrets) Active() (string, error) {
	if k, err := s.Tables.Keys.Get(trivet.SealKey); err == nil && k.Status.Active != "" {
		return k.Status.Active, nil
	}
	return s.Ring.IDs()[0], nil
}

// Activate implements [Contents]: the record says it.
func (s Secrets) Activate(*store.Tx, string) error { return nil }

// EndReseal implements [Contents].
func (s Secrets) EndReseal(context.Context, int64) error { return nil }

// Drops implements [Contents].
func (s Secrets) Drops(id string) error {
	for secret := range s.Tables.Secrets.AllShared() {
		for field, text := range secret.Spec.Data {
			if s.Sealer.SealedWith(text) == id {
				return fmt.Errorf("%w: spec.data.%s of secret/%s is sealed with it", trivet.ErrConflict, field,
					secret.ShortName())
			}
		}
	}
	return nil
}

// Reseal implements [Contents].
func (s Secrets) Reseal(ctx context.Context, active, after string) (page store.ResealPage, err error) {
	var names []string
	for secret := range s.Tables.Secrets.After(after, secretsPage) {
		page.Read++
		page.Next = secret.FullName()
		if s.isBehind(secret, active) {
			names = append(names, secret.FullName())
		}
		if len(names) == resealsPage {
			break
		}
	}
	page.Found = len(names)
	if page.Read < secretsPage && page.Found < resealsPage {
		page.Next = ""
	}
	if len(names) == 0 {
		return page, nil
	}
	_, err = s.Tables.Store.Update(ctx, func(tx *store.Tx) error {
		page.Written = 0
		for _, name := range names {
			written, err := s.reseal(tx, name, active)
			if err != nil {
				return err
			}
			page.Written += written
		}
		return nil
	})
	return page, err
}

func (s Secrets) isBehind(secret *trivet.Secret, active string) bool {
	for _, text := range secret.Spec.Data {
		if key := s.Sealer.SealedWith(text); key != "" && key != active {
			return true
		}
	}
	return false
}

// reseal seals the values of a secret with the active key, where they are not, and returns how many.
func (s Secrets) reseal(tx *store.Tx, name, active string) (written int, err error) {
	secret, err := s.Tables.Secrets.In(tx).Get(name)
	if errors.Is(err, trivet.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	for _, field := range slices.Sorted(maps.Keys(secret.Spec.Data)) {
		text := secret.Spec.Data[field]
		if key := s.Sealer.SealedWith(text); key == "" || key == active {
			continue
		}
		if secret.Spec.Data[field], err = s.Sealer.Reseal(secret, field, text, active); err != nil {
			return 0, err
		}
		written++
	}
	if written == 0 {
		return 0, nil
	}
	return written, s.Tables.Secrets.In(tx).Put(secret)
}
