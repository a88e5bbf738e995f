package membership

import (
	"context"
	"fmt"
	"net/http"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/keyring"
	"github.com/trivet-project/trivet/internal/store"
)

// keysPath is the endpoint by which a full head gets the keys of the store that it does not have.
const keysPath = "keys/store"

// KeysResponse is the keys of the store, as in keys/store.keys. It is secret.
type KeysResponse struct {
	Store []byte `json:"store"`
}

// storeKeys responds to a full head with the keys of the store. Without a quorum it responds to none: this head may not
// have seen the removal of the caller yet.
func (s *Server) storeKeys(r *http.Request, from auth.Peer, _ []byte) (any, error) {
	if !s.Members.HasLeader() {
		return nil, fmt.Errorf("keys: %w: this head knows no leader", trivet.ErrUnavailable)
	}
	if err := s.Records.verifyFull(r.Context(), from.Name); err != nil {
		return nil, err
	}
	return KeysResponse{s.Keys.Store().Text()}, nil
}

// verifyFull returns ErrForbidden for a head that is no full head, or is being removed. It reads the record by the
// quorum.
func (r *Records) verifyFull(ctx context.Context, name string) error {
	return r.update(ctx, func(tx *store.Tx) error {
		h, err := r.Heads.In(tx).Get(name)
		if err == nil && !h.Serves() {
			err = fmt.Errorf("keys: %w: %s is not a full head of this cluster, or is being removed",
				trivet.ErrForbidden, name)
		}
		return err
	})
}

// StoreKeys is the keys of the store that this head has.
type StoreKeys struct{ local *Local }

// StoreKeys returns this head's keys of the store; not on a witness.
func (l *Local) StoreKeys() StoreKeys { return StoreKeys{l} }

// IDs returns the IDs of the keys, the one that new values are written with first.
func (k StoreKeys) IDs() []string { return k.local.keys.Store().IDs() }

func (k StoreKeys) change(do func(keyring.Ring) (keyring.Ring, error)) error {
	return k.local.keys.ChangeStore(k.local.path("keys"), do)
}

// Create adds a new key, and returns its ID when it is on the disk.
func (k StoreKeys) Create() (id string, err error) {
	created := keyring.New()
	return created.ID().String(), k.change(func(r keyring.Ring) (keyring.Ring, error) { return r.With(created), nil })
}

// Use makes a key the first one.
func (k StoreKeys) Use(first string) error { return k.keep(first, nil) }

// DropOthers drops all keys but one.
func (k StoreKeys) DropOthers(only string) error {
	return k.keep(only, func(keyring.ID) bool { return false })
}

func (k StoreKeys) keep(first string, others func(keyring.ID) bool) error {
	id, err := keyring.ParseID(first)
	if err != nil {
		return err
	}
	return k.change(func(r keyring.Ring) (keyring.Ring, error) { return r.Keep(id, others), nil })
}

// Fetch adds the keys that another full head has, with those of some IDs.
func (k StoreKeys) Fetch(ctx context.Context, ids ...string) error {
	return fetch(ctx, k.local, keysPath, fmt.Sprintf("the keys of the store %v", ids),
		func(resp *KeysResponse) (bool, error) {
			err := k.add(resp.Store)
			return err == nil && containsAll(k.IDs(), ids), err
		})
}

// add adds the keys of another head after this one's.
func (k StoreKeys) add(text []byte) error {
	got, err := keyring.Parse(text)
	if err != nil {
		return err
	}
	return k.change(func(r keyring.Ring) (keyring.Ring, error) { return r.With(got.Keys()...), nil })
}

// updateKeys gets the keys of the store that the other heads have, before this head reads the store. A head that was
// down has what it needs, as a key is used only when all full heads have it; but its directory may have been put back
// from a copy.
func (l *Local) updateKeys(ctx context.Context) error {
	if l.data.witness() || l.unverified || len(l.otherMembers()) == 0 {
		return nil
	}
	if err := l.StoreKeys().Fetch(ctx); err != nil {
		l.cfg.Log.Debug("no other head sent the keys of the store; using those that this head has", "error", err)
	}
	return nil
}
