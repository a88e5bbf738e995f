package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
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

// identity is who this head is. It is written at its first start and never changes.
type identity struct {
	Name string `json:"name"`
	Role string `json:"role"`
	// URL and Peers are for a head that joined: where its member is reached, and the members that it starts with.
	URL   string         `json:"url,omitempty"`
	Peers []cluster.Peer `json:"peers,omitempty"`
}

func (s *Server) path(name string) string { return filepath.Join(s.cfg.Dir, name) }

// identify finds out who this head is: by its data, by joining, or as the first of a new cluster.
func (s *Server) identify(ctx context.Context) error {
	if err := os.MkdirAll(s.cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	text, err := os.ReadFile(s.path("head.json"))
	switch {
	case err == nil:
		if err := json.Unmarshal(text, &s.self); err != nil {
			return fmt.Errorf("%s: %w: %w", s.path("head.json"), trivet.ErrInvalid, err)
		}
		return s.loadKeys()
	case !errors.Is(err, fs.ErrNotExist):
		return err
	case len(s.cfg.Join) > 0 && !fileExists(s.path("store")):
		err = s.join(ctx)
	default:
		s.self = identity{Name: s.cfg.Name, Role: trivet.RoleVoter}
		err = s.loadKeys()
	}
	if err != nil {
		return err
	}
	return writeJSON(s.path("head.json"), s.self)
}

// loadKeys reads the cluster's keys; for the first head of a new one it makes them.
func (s *Server) loadKeys() (err error) {
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
	s.self = identity{Name: place.Name, Role: place.Role, URL: ask.Peer, Peers: place.Peers}
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
	cert, err := s.keys.CA.SignPeer(auth.Peer{Name: s.self.Name, Role: auth.PeerHead}, csr, time.Now())
	if err != nil {
		return err
	}
	return renameio.WriteFile(s.peerFiles().Cert, cert, 0o600)
}

func writeJSON(path string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return renameio.WriteFile(path, append(text, '\n'), 0o600)
}
