package membership

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/google/renameio/v2"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
)

// casPath is the endpoint by which a head gets the cluster's CAs.
const casPath = "keys/ca"

// CAsResponse is the CAs in the key directory of a full head. A witness gets the certificates only.
type CAsResponse struct {
	auth.CABundle
	// InUse: all full heads use exactly these, so a witness does, too.
	InUse bool `json:"inUse,omitempty"`
}

// cas responds to a member with the CAs, and to a full head with their keys.
func (s *Server) cas(r *http.Request, from auth.Peer, _ []byte) (any, error) {
	resp := CAsResponse{CABundle: s.Keys.CABundle(), InUse: true}
	if from.Role != auth.PeerHead {
		resp.CABundle = auth.CABundle{Certs: resp.Certs}
	} else if err := s.checkKeyHolder(r, from); err != nil {
		return nil, err
	}
	root, err := auth.ParseRoot(resp.Certs)
	if err != nil {
		return nil, err
	}
	for h := range s.Records.Heads.AllShared() {
		if h.Serves() && !slices.Equal(h.Status.CAs, root.Pins()) {
			resp.InUse = false
		}
	}
	return resp, nil
}

// CAs is the CAs that this head has.
type CAs struct{ local *Local }

// CAs returns this head's CAs; not on a witness.
func (l *Local) CAs() CAs { return CAs{l} }

// InUse returns the pins of those that this process uses. The first has signed the head's certificate.
func (c CAs) InUse() []string { return c.local.keys.CA.Pins() }

// Stored returns the pins of those in the directory, which the next start uses.
func (c CAs) Stored() []string { return c.local.keys.StoredCAs() }

// Create adds a new CA, and returns its pin when it is on the disk.
func (c CAs) Create() (pin string, err error) { return c.local.keys.CreateCA(c.local.path("keys")) }

// Use makes these CAs, which are in the directory, the ones of the next start.
func (c CAs) Use(pins []string) error { return c.local.keys.UseCAs(c.local.path("keys"), pins) }

// Fetch adds the CAs that another full head has, with these.
func (c CAs) Fetch(ctx context.Context, pins ...string) error {
	return fetch(ctx, c.local, casPath, fmt.Sprintf("the CAs %v", pins), func(resp *CAsResponse) (bool, error) {
		err := c.local.keys.AddCAs(c.local.path("keys"), resp.CABundle)
		return err == nil && containsAll(c.Stored(), pins), err
	})
}

func containsAll(have, want []string) bool {
	return !slices.ContainsFunc(want, func(s string) bool { return !slices.Contains(have, s) })
}

// inUse returns the pins of the CAs that this head's process uses, the one that signed its certificate first.
func (l *Local) inUse() []string {
	root, cert := l.Root(), l.certs.member.Load()
	if root == nil || cert == nil {
		return nil
	}
	pins := root.Pins()
	if len(pins) > 1 && !root.SignedByFirst(cert.Leaf) {
		slices.Reverse(pins)
	}
	return pins
}

// ErrRestart ends a head that must start again, to use other CAs or another program.
var ErrRestart = errors.New("this head is to start again")

// followInterval is how often a witness requests the CAs.
const followInterval = 5 * time.Second

// followCAs makes a witness use the CAs of the full heads. It returns ErrRestart once these are in its directory.
func (l *Local) followCAs(ctx context.Context) error {
	err := fetch(ctx, l, casPath, "the CAs", func(resp *CAsResponse) (bool, error) {
		root, err := auth.ParseRoot(resp.Certs)
		if err != nil || !resp.InUse || slices.Equal(root.Pins(), l.Root().Pins()) {
			return err == nil, err
		}
		if root.Cluster() != l.Root().Cluster() {
			return false, fmt.Errorf("%w: CAs of cluster %s", trivet.ErrInvalid, root.Cluster())
		}
		if err := renameio.WriteFile(l.path("keys/ca.pem"), root.PEM(), 0o644); err != nil {
			return false, err
		}
		return true, ErrRestart
	})
	if err != nil && ctx.Err() == nil {
		l.cfg.Log.Debug("the CAs of the cluster are not known", "error", err)
	}
	return err
}
