package membership

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/peer"
	"github.com/trivet-project/trivet/internal/program"
	"github.com/trivet-project/trivet/internal/store"
)

// A witness reads no records: full heads send it the upgrade, and the program.
const (
	upgradePath = "upgrade"
	programPath = "upgrade/program/"
)

// upgradeResponse is the upgrade; empty: there was none.
type upgradeResponse struct {
	Spec   trivet.UpgradeSpec   `json:"spec"`
	Status trivet.UpgradeStatus `json:"status,omitzero"`
}

// upgrade responds with the upgrade. What lets the caller start again is confirmed by a quorum first, and left out
// while others are not well: one head starts again at a time.
func (s *Server) upgrade(r *http.Request, from auth.Peer, _ []byte) (any, error) {
	u, err := s.Records.Upgrades.Get(trivet.UpgradeName)
	starts := func() bool { return u.Status.Head == from.Name || u.Status.Phase == trivet.UpgradeReverted }
	if err == nil && starts() {
		err = s.Records.update(r.Context(), func(tx *store.Tx) error {
			u, err = s.Records.Upgrades.In(tx).Get(trivet.UpgradeName)
			return err
		})
	}
	switch {
	case errors.Is(err, trivet.ErrNotFound):
		return upgradeResponse{}, nil
	case err != nil:
		return nil, err
	}
	resp := upgradeResponse{u.Spec, u.Status}
	if starts() && program.MayStart(u.Status.Phase, s.others(from.Name)) != "" {
		resp.Status.Head = ""
		if u.Status.Phase == trivet.UpgradeReverted {
			resp.Status.Phase = trivet.UpgradeReverting
		}
	}
	return resp, nil
}

// others returns the members beside one, as this head sees them.
func (s *Server) others(than string) (all []program.Other) {
	for h := range s.Records.Heads.AllShared() {
		if h.Name != than && h.Status.State != trivet.HeadRemoved {
			own := h.Name == s.Records.self
			all = append(all, program.Other{Name: h.Name, Responds: own || s.Well(h, 0), Stable: own || s.Well(h, StableTime)})
		}
	}
	return all
}

// program serves the content of a new program.
func (s *Server) program(w http.ResponseWriter, r *http.Request) {
	u, err := s.Records.Upgrades.Get(trivet.UpgradeName)
	if err != nil || !u.NeedsPrograms() {
		http.NotFound(w, r)
		return
	}
	for _, p := range u.Spec.Programs {
		if p.Blob.Digest != r.PathValue("digest") {
			continue
		}
		content, err := s.Programs(r.Context(), p.Blob)
		if err != nil {
			break
		}
		defer content.Close()
		w.Header().Set("Content-Length", strconv.FormatInt(p.Blob.Bytes, 10))
		_, _ = io.Copy(w, io.LimitReader(content, p.Blob.Bytes)) // the caller verifies the digest
		return
	}
	http.NotFound(w, r)
}

// OpenProgram is [program.Own.Open] of a witness: a full head sends the content.
func (l *Local) OpenProgram(ctx context.Context, blob trivet.BlobRef) (io.ReadCloser, error) {
	err := fmt.Errorf("%w: no full head sends the program", trivet.ErrNotFound)
	members := l.otherMembers()
	rand.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] }) // one may send garbage
	for _, p := range members {
		content, failed := l.client.OpenFullHead(ctx, p.URL, programPath+blob.Digest)
		if failed == nil {
			return struct {
				io.Reader
				io.Closer
			}{io.LimitReader(content, blob.Bytes), content}, nil
		}
		err = errors.Join(err, failed)
	}
	return nil, err
}

// stageTimeout bounds how long a witness loads a program; meanwhile it does not follow changes of the CA.
const stageTimeout = 2 * time.Minute

// followUpgrade makes a witness follow the upgrade that is in progress. It returns ErrRestart where the witness must
// start again.
func (l *Local) followUpgrade(ctx context.Context, own *program.Own) error {
	var resp upgradeResponse
	err := fetch(ctx, l, upgradePath, "the upgrade", func(r *upgradeResponse) (bool, error) {
		resp = *r
		return true, nil
	})
	if err != nil || resp.Spec.Run == 0 {
		return err
	}
	u := &trivet.Upgrade{Spec: resp.Spec, Status: resp.Status}
	stage, cancel := context.WithTimeout(ctx, stageTimeout)
	defer cancel()
	report := own.Report(stage, u)
	l.program.Store(&report)
	follow := own.Follow(u, l.Name(), &report)
	if follow == nil {
		return nil
	}
	if err := follow(); err != nil {
		return err
	}
	l.cfg.Log.Info("this witness starts again with another program", "phase", u.Status.Phase, "version", u.Spec.Version)
	return ErrRestart
}

// programOf returns what a witness reports of its program, if it can be that.
func programOf(s *peer.Status) *trivet.HeadProgram {
	const maxText = 500
	p := s.Program
	if p == nil || len(p.Problem) > maxText || len(p.Running) > maxText || len(p.Arch) > maxText {
		return nil
	}
	return p
}
