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

// keysPath is the endpoint by which a full head gets the keys of a name that it does not have.
func keysPath(name string) string { return "keys/" + name }

// KeysResponse is the keys of a name, as in keys/NAME.keys, or keys/boot-ca.pem. It is secret.
type KeysResponse struct {
	Ring []byte `json:"store"`
}

// ring responds to a full head with the keys that text returns.
func (s *Server) ring(text func() []byte) func(*http.Request, auth.Peer, []byte) (any, error) {
	return func(r *http.Request, from auth.Peer, _ []byte) (any, error) {
		if err := s.checkKeyHolder(r, from); err != nil {
			return nil, err
		}
		return KeysResponse{text()}, nil
	}
}

// checkKeyHolder returns why a caller gets no keys. It must be a full head that stays, and call from the address by
// which the others reach it: a party that has the CA's key from a stolen disk can name itself as any head. Without a
// quorum this head responds to none, as it may not have seen the removal of the caller yet.
func (s *Server) checkKeyHolder(r *http.Request, from auth.Peer) error {
	if !s.Members.HasLeader() {
		return fmt.Errorf("keys: %w: this head knows no leader", trivet.ErrUnavailable)
	}
	if err := s.Records.verifyFull(r.Context(), from.Name); err != nil {
		return err
	}
	h, err := s.Records.Heads.GetShared(from.Name)
	if err != nil {
		return err
	}
	if !s.sources.IsFrom(r, hostOf(h.Status.Peer)) {
		return &trivet.Error{Op: "request keys", Kind: "Head", Name: from.Name,
			Err: fmt.Errorf("%w: it is reached at %s, and this request is from %s", trivet.ErrForbidden, h.Status.Peer,
				r.RemoteAddr),
			Hint: "for keys, a head must call from the address that it advertises: see --advertise, the routes of " +
				"its host, and gateways that change addresses"}
	}
	return nil
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

// Ring is the keys of a name that this head has.
type Ring struct {
	local *Local
	name  string
}

// Ring returns this head's keys of a name; not on a witness.
func (l *Local) Ring(name string) Ring { return Ring{l, name} }

// IDs returns the IDs of the keys, the one that is in use first.
func (k Ring) IDs() []string { return k.local.keys.Ring(k.name).IDs() }

func (k Ring) change(do func(keyring.Ring) (keyring.Ring, error)) error {
	return k.local.keys.ChangeRing(k.local.path("keys"), k.name, do)
}

// Create adds a new key, and returns its ID when it is on the disk.
func (k Ring) Create() (id string, err error) {
	created := keyring.New()
	return created.ID().String(), k.change(func(r keyring.Ring) (keyring.Ring, error) { return r.With(created), nil })
}

// Use makes a key the first one.
func (k Ring) Use(first string) error { return k.keep(first, nil) }

// DropOthers drops all keys but one.
func (k Ring) DropOthers(only string) error {
	return k.keep(only, func(keyring.ID) bool { return false })
}

func (k Ring) keep(first string, others func(keyring.ID) bool) error {
	id, err := keyring.ParseID(first)
	if err != nil {
		return err
	}
	return k.change(func(r keyring.Ring) (keyring.Ring, error) { return r.Keep(id, others), nil })
}

// Fetch adds the keys that another full head has, with those of some IDs.
func (k Ring) Fetch(ctx context.Context, ids ...string) error {
	return fetch(ctx, k.local, keysPath(k.name), fmt.Sprintf("the keys of %s %v", k.name, ids),
		func(resp *KeysResponse) (bool, error) {
			err := k.add(resp.Ring)
			return err == nil && containsAll(k.IDs(), ids), err
		})
}

// add adds the keys of another head after this one's.
func (k Ring) add(text []byte) error {
	got, err := keyring.Parse(text)
	if err != nil {
		return err
	}
	return k.change(func(r keyring.Ring) (keyring.Ring, error) { return r.With(got.Keys()...), nil })
}

// updateKeys gets the keys that the other heads have, before this head reads the store. A head that was down has what
// it needs, as a key is used only when all full heads have it; but its directory may have been put back from a copy.
func (l *Local) updateKeys(ctx context.Context) error {
	if l.data.witness() || l.unverified || len(l.otherMembers()) == 0 {
		return nil
	}
	get := func(name string, fetch func(context.Context, ...string) error) {
		if err := fetch(ctx); err != nil {
			l.cfg.Log.Debug("no other head sent its keys; using those that this head has", "keys", name, "error", err)
		}
	}
	for _, name := range auth.RingNames {
		get(name, l.Ring(name).Fetch)
	}
	get(trivet.BootCAKey, l.BootCAs().Fetch)
	return nil
}
