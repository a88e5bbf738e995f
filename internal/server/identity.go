package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/heads"
)

func (s *Server) path(name string) string { return filepath.Join(s.cfg.Dir, name) }

// identify finds out who this head is: by its data, by joining, or as the first of a new cluster.
func (s *Server) identify(ctx context.Context) error {
	if s.data.Format != 0 {
		return s.loadKeys()
	}
	s.data = dataFile{Format: dataFormat, Name: s.cfg.Name, Role: trivet.RoleVoter}
	step := func(context.Context) error { return s.makeKeys() }
	if len(s.cfg.Join) > 0 {
		step = s.join
	}
	if err := step(ctx); err != nil {
		return err
	}
	return s.keepData()
}

// loadKeys reads the cluster's keys. Without them no secret could be opened, and nobody would trust this head.
func (s *Server) loadKeys() (err error) {
	dir := s.path("keys")
	if s.keys, err = auth.Load(dir); errors.Is(err, trivet.ErrNotFound) {
		err = &trivet.Error{Op: "open keys", Name: dir, Err: err, Hint: "put the folder's backup back"}
	}
	return err
}

// makeKeys makes those of a new cluster. A start that was cut off may have made them.
func (s *Server) makeKeys() (err error) {
	if s.keys, err = auth.Load(s.path("keys")); errors.Is(err, trivet.ErrNotFound) {
		var id [8]byte
		rand.Read(id[:])
		s.keys, err = auth.Init(s.path("keys"), hex.EncodeToString(id[:]))
	}
	return err
}

// joinPatience is how long a head waits for its place: another one may be joining.
const joinPatience = 5 * time.Minute

// join asks the cluster for a place, and keeps what it gets. A request that is cut off is said again at the next start.
func (s *Server) join(ctx context.Context) error {
	token, err := heads.ParseToken(s.cfg.JoinToken)
	if err != nil {
		return err
	}
	id, err := s.joinID()
	if err != nil {
		return err
	}
	csr, err := s.peerRequest()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, joinPatience)
	defer cancel()
	ask := heads.Ask{ID: id, Peer: s.APIURLs()[0], CSR: csr}
	place, err := heads.Join(ctx, s.cfg.Join, token, ask, func(line string) { s.cfg.Log.Info(line) })
	if err != nil {
		return fmt.Errorf("join %s: %w", s.cfg.Join, err)
	}
	s.data.Name, s.data.Role, s.data.URL, s.data.Peers = place.Name, place.Role, ask.Peer, place.Peers
	if s.keys, err = auth.Install(s.path("keys"), place.Keys); err != nil {
		return err
	}
	return renameio.WriteFile(s.peerFiles().Cert, place.Cert, 0o600)
}

// joinID names this head's request to join.
func (s *Server) joinID() (string, error) {
	text, err := os.ReadFile(s.path("join-id"))
	if errors.Is(err, fs.ErrNotExist) {
		text = []byte(rand.Text())
		err = renameio.WriteFile(s.path("join-id"), text, 0o600)
	}
	return string(text), err
}

// peerFiles are how this head's member proves itself to others.
func (s *Server) peerFiles() cluster.PeerTLS {
	return cluster.PeerTLS{Cert: s.path("peer.pem"), Key: s.path("peer-key.pem"), CA: s.path("keys/ca.pem")}
}

// peerRequest asks for a certificate for this head's key, which is made at its first start.
func (s *Server) peerRequest() ([]byte, error) {
	file := s.peerFiles().Key
	key, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		if key, err = auth.PeerKey(); err == nil {
			err = renameio.WriteFile(file, key, 0o600)
		}
	}
	if err != nil {
		return nil, err
	}
	return auth.PeerRequest(key)
}

// certify makes a fresh certificate for the member: at each start, and long before the last one ends.
func (s *Server) certify() error {
	csr, err := s.peerRequest()
	if err != nil {
		return err
	}
	cert, err := s.keys.CA.SignPeer(auth.Peer{Name: s.data.Name, Role: auth.PeerHead}, csr, time.Now())
	if err != nil {
		return err
	}
	return renameio.WriteFile(s.peerFiles().Cert, cert, 0o600)
}
