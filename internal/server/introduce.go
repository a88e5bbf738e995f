package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/heads"
	"github.com/trivet-project/trivet/internal/store"
)

// admin is the account that heads' first starts make.
const admin = "admin"

// firstWrites bounds those of a first start, laterWrites those of a later one: it serves reads and boots meanwhile.
const (
	firstWrites = time.Minute
	laterWrites = 15 * time.Second
)

// introduce writes how this head is reached and makes an administrator's credential, where this head has none: on each of
// them root is an operator, as whoever has the cluster's keys is. A head that cannot write now, as it has no leader, or its
// disk is full or slow, serves reads and boots, and does this later. Its first start must succeed at once, as there is
// nothing to serve yet, and may take its time.
func (s *Server) introduce(ctx context.Context) error {
	patience := laterWrites
	if s.data.isNew() {
		patience = firstWrites
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := s.writable()
	if err == nil {
		err = s.introduceNow(ctx)
	}
	if (errors.Is(err, trivet.ErrUnavailable) || errors.Is(err, trivet.ErrUnknown)) && !s.data.isNew() {
		s.cfg.Log.Warn("this head cannot write yet; it serves reads and boots", "error", err)
		return nil
	}
	s.introduced = err == nil
	return err
}

func (s *Server) introduceNow(ctx context.Context) error {
	if err := s.member.SetURL(ctx, s.APIURLs()[0]); err != nil {
		return err
	}
	if err := s.introduceHead(ctx); err != nil {
		return fmt.Errorf("introduce head: %w", err)
	}
	admin := s.updateAdminFile
	if !fileExists(AdminFile(s.cfg.Dir)) {
		admin = func() error { return s.makeAdmin(ctx) }
	}
	if err := admin(); errors.Is(err, trivet.ErrInvalid) {
		return &trivet.Error{Op: "read the administrator's file", Err: err, Hint: "remove it, and a new administrator's token is made"}
	} else if err != nil {
		return fmt.Errorf("administrator's file: %w", err)
	}
	return s.started()
}

// started notes that there is a store, and where the others know this head to be.
func (s *Server) started() error {
	s.dataMu.Lock()
	defer s.dataMu.Unlock()
	s.data.Started, s.data.URL, s.data.Member = true, s.APIURLs()[0], heads.MemberID(s.member.ID())
	if err := s.keepData(); err != nil {
		return err
	}
	if s.data.Token != "" {
		_ = os.Remove(s.joinIDFile(s.data.Token)) // it has done its work; if it stays, nobody reads it
	}
	return nil
}

// introduceLater tries until it succeeds or ctx ends.
func (s *Server) introduceLater(ctx context.Context) {
	again := time.NewTicker(5 * time.Second)
	defer again.Stop()
	for !s.introduced {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
		if err := s.introduce(ctx); err != nil {
			s.cfg.Log.Error("this head is not introduced", "error", err)
		}
	}
}

func (s *Server) introduceHead(ctx context.Context) error {
	_, err := s.store.Update(ctx, func(tx *store.Tx) error {
		h, err := s.fleet.Heads.In(tx).Get(s.data.Name)
		if errors.Is(err, trivet.ErrNotFound) {
			h, err = &trivet.Head{Meta: trivet.Meta{Name: s.data.Name}, Spec: trivet.HeadSpec{Role: "voter"}}, nil
		}
		if err != nil {
			return err
		}
		st := &h.Status
		st.Version, st.API, st.Boot, st.Peer = s.cfg.Version, s.APIURLs(), s.BootURLs(), s.APIURLs()[0]
		st.DHCP = s.cfg.dhcpAddresses(s.hosts)
		st.Started, st.Member = s.begun, heads.MemberID(s.member.ID())
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
		account := &trivet.Account{Meta: trivet.Meta{Name: admin}, Spec: trivet.AccountSpec{Role: trivet.AccountAdmin}}
		token := &trivet.Token{Meta: trivet.Meta{Name: id, Labels: map[string]string{"head": s.data.Name}}, Spec: trivet.TokenSpec{Account: admin, Hash: hash}}
		return errors.Join(s.fleet.Accounts.In(tx).Put(account), s.fleet.Tokens.In(tx).Put(token))
	})
	if err != nil {
		return err
	}
	return s.writeAdminFile(plain.Reveal())
}

func (s *Server) writeAdminFile(token string) error {
	file := client.File{Current: "local", Contexts: map[string]client.Context{
		"local": {Endpoints: s.endpoints(), Trust: s.Pin(), Token: token},
	}}
	return file.Write(AdminFile(s.cfg.Dir))
}
