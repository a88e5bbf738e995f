package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/store"
)

// admin is the account that the first start makes.
const admin = "admin"

// introduce writes how this head is reached and, where the cluster has no administrator yet, makes one. A head without a
// leader says so later: boots are served meanwhile.
func (s *Server) introduce(ctx context.Context) error {
	if !s.member.HasLeader() {
		s.cfg.Log.Warn("no leader: this head serves boots, and writes when there is one")
		return nil
	}
	if err := s.member.SetURL(ctx, s.APIURLs()[0]); err != nil {
		return err
	}
	if err := s.introduceHead(ctx); err != nil {
		return fmt.Errorf("introduce head: %w", err)
	}
	if fileExists(AdminFile(s.cfg.Dir)) {
		return s.updateAdminFile()
	}
	if len(s.self.Peers) > 0 {
		return nil // the cluster has administrators
	}
	if err := s.makeAdmin(ctx); err != nil {
		return fmt.Errorf("make the first administrator: %w", err)
	}
	return nil
}

func (s *Server) introduceHead(ctx context.Context) error {
	_, err := s.store.Update(ctx, func(tx *store.Tx) error {
		h, err := s.fleet.Heads.In(tx).Get(s.self.Name)
		if errors.Is(err, trivet.ErrNotFound) {
			h, err = &trivet.Head{Meta: trivet.Meta{Name: s.self.Name}, Spec: trivet.HeadSpec{Role: "voter"}}, nil
		}
		if err != nil {
			return err
		}
		st := &h.Status
		st.Version, st.API, st.Boot, st.Peer = s.cfg.Version, s.APIURLs(), s.BootURLs(), s.APIURLs()[0]
		st.Started, st.Member = time.Now().UTC().Truncate(time.Second), fmt.Sprintf("%016x", s.member.ID())
		if st.State == "" {
			st.State = trivet.HeadMember
		}
		return s.fleet.Heads.In(tx).Put(h)
	})
	return err
}

// makeAdmin writes the token's hash into the store before the token into the file: a file that is there works.
func (s *Server) makeAdmin(ctx context.Context) error {
	id, plain, hash := auth.NewToken()
	_, err := s.store.Update(ctx, func(tx *store.Tx) error {
		account := &trivet.Account{Meta: trivet.Meta{Name: admin}, Spec: trivet.AccountSpec{Role: string(auth.Admin)}}
		token := &trivet.Token{Meta: trivet.Meta{Name: id}, Spec: trivet.TokenSpec{Account: admin, Hash: hash}}
		return errors.Join(s.fleet.Accounts.In(tx).Put(account), s.fleet.Tokens.In(tx).Put(token))
	})
	if err != nil {
		return err
	}
	return s.writeAdminFile(plain.Reveal())
}

func (s *Server) writeAdminFile(token string) error {
	file := client.File{Current: "local", Contexts: map[string]client.Context{
		"local": {Endpoints: s.APIURLs(), Trust: s.Pin(), Token: token},
	}}
	return file.Write(AdminFile(s.cfg.Dir))
}

// updateAdminFile keeps the addresses in the file right.
func (s *Server) updateAdminFile() error {
	file, err := client.ReadFile(AdminFile(s.cfg.Dir))
	if err != nil {
		return err
	}
	c, err := file.Pick("")
	if err != nil {
		return err
	}
	return s.writeAdminFile(c.Token)
}
