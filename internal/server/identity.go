package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
)

func (s *Server) path(name string) string { return filepath.Join(s.cfg.Dir, name) }

// identify finds out who this head is: by its data, by joining, or as the first of a new cluster.
func (s *Server) identify(ctx context.Context) error {
	step := s.loadKeys
	switch {
	case s.joining:
		step = func() error { return s.join(ctx) }
	case s.data.Format == 0:
		step = func() error { return s.found(ctx) }
	}
	if err := step(); err != nil {
		return err
	}
	if s.keys != nil {
		s.root = &s.keys.CA.Root
	}
	return s.keepData()
}

// loadKeys reads the cluster's keys. Without them no secret could be opened, and nobody would trust this head. A witness
// has no more than the certificate of the CA.
func (s *Server) loadKeys() (err error) {
	dir := s.path("keys")
	if s.data.witness() {
		s.root, err = readRoot(dir)
	} else {
		s.keys, err = auth.Load(dir)
	}
	if errors.Is(err, trivet.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		err = &trivet.Error{Op: "open keys", Name: dir, Err: err, Hint: "put the folder's backup back"}
	}
	return err
}

func readRoot(dir string) (*auth.Root, error) {
	text, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err != nil {
		return nil, err
	}
	root, err := auth.ParseRoot(text)
	if err != nil {
		return nil, fmt.Errorf("load keys from %s: %w", dir, err)
	}
	return root, nil
}

// found makes a new cluster, unless another one is there. A start that was cut off may have made the keys.
func (s *Server) found(ctx context.Context) (err error) {
	if err := s.alone(ctx); err != nil {
		return err
	}
	if s.keys, err = auth.Load(s.path("keys")); errors.Is(err, trivet.ErrNotFound) {
		var id [8]byte
		rand.Read(id[:])
		s.keys, err = auth.Init(s.path("keys"), hex.EncodeToString(id[:]))
	}
	s.data = dataFile{Format: dataFormat, Name: s.cfg.Name, Role: trivet.RoleVoter}
	return err
}
