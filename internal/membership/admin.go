package membership

import (
	"context"
	"errors"
	"path/filepath"
	"slices"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/store"
)

// adminAccount is the account of the credentials that first starts create: root on a head is an administrator, as it
// can read the cluster's keys.
const adminAccount = "admin"

// adminContext is the context in the administrator's file.
const adminContext = "local"

// AdminFile returns the path of the administrator's credential, which the first start creates.
func AdminFile(dir string) string { return filepath.Join(dir, "admin.yaml") }

// writeAdminFile creates the administrator's file, or updates the heads' addresses and the CAs in it. Where its token
// was revoked, or its account deleted, it creates another one: root on a head must not be locked out of it.
func (r *Registration) writeAdminFile(ctx context.Context) error {
	c, err := r.readAdminFile()
	if errors.Is(err, trivet.ErrNotFound) {
		return r.createAdmin(ctx)
	}
	if err != nil {
		return err
	}
	ok, err := r.accepts(ctx, c.Token)
	if err != nil {
		return err
	}
	if !ok {
		r.Local.cfg.Log.Warn("the token of the administrator's file was revoked; another one is created",
			"file", AdminFile(r.Local.cfg.Dir))
		return r.createAdmin(ctx)
	}
	return r.updateAdminFile()
}

func (r *Registration) readAdminFile() (client.Context, error) {
	file, err := client.ReadFile(AdminFile(r.Local.cfg.Dir))
	if err != nil {
		return client.Context{}, err
	}
	return file.Pick("")
}

// accepts reports whether a token is an administrator's. What was written last counts, not this head's copy.
func (r *Registration) accepts(ctx context.Context, token string) (ok bool, err error) {
	id, err := auth.ParseToken(token)
	if err != nil {
		return false, nil
	}
	_, err = r.Records.Store.Update(ctx, func(tx *store.Tx) error {
		t, err := r.Records.Tokens.In(tx).Get(id)
		if err != nil {
			return err
		}
		a, err := r.Records.Accounts.In(tx).Get(t.Spec.Account)
		ok = err == nil && auth.CheckToken(token, t.Spec.Hash) == nil && a.UID == t.Spec.AccountUID &&
			a.Spec.Role == trivet.AccountAdmin
		return err
	})
	if errors.Is(err, trivet.ErrNotFound) {
		return false, nil
	}
	return ok, err
}

// updateAdminFile updates the heads' addresses and the CAs in the file.
func (r *Registration) updateAdminFile() error {
	c, err := r.readAdminFile()
	if err != nil || slices.Equal(c.Endpoints, r.endpoints()) && c.Trust == r.Local.Root().Trust() {
		return err
	}
	return r.writeToken(c.Token)
}

// createAdmin writes the token's hash to the store before the token to the file: the token of a file is always valid.
func (r *Registration) createAdmin(ctx context.Context) error {
	id, plain, hash := auth.NewToken()
	_, err := r.Records.Store.Update(ctx, func(tx *store.Tx) error {
		h, err := r.Records.Heads.In(tx).Get(r.Local.Name())
		if err != nil || h.Spec.Remove || h.Status.State == trivet.HeadRemoved {
			return errors.Join(err, r.Local.ErrRemoved())
		}
		account := &trivet.Account{Meta: trivet.Meta{Name: adminAccount},
			Spec: trivet.AccountSpec{Role: trivet.AccountAdmin}}
		token := &trivet.Token{Meta: trivet.Meta{Name: id, Labels: map[string]string{trivet.HeadLabel: r.Local.Name()}},
			Spec: trivet.TokenSpec{Account: adminAccount, Hash: hash}}
		return errors.Join(r.Records.Accounts.In(tx).Put(account), r.Records.Tokens.In(tx).Put(token))
	})
	if err != nil {
		return err
	}
	return r.writeToken(plain.Reveal())
}

func (r *Registration) writeToken(token string) error {
	file := client.File{Current: adminContext, Contexts: map[string]client.Context{
		adminContext: {Endpoints: r.endpoints(), Trust: r.Local.Root().Trust(), Token: token},
	}}
	return file.Write(AdminFile(r.Local.cfg.Dir))
}

// endpoints returns the APIs of all full heads, this one's first.
func (r *Registration) endpoints() []string {
	urls := slices.Clone(r.Local.addr.API)
	for h := range r.Records.Heads.AllShared() {
		if h.Name != r.Local.Name() && h.Serves() {
			urls = append(urls, h.Status.API...)
		}
	}
	return urls
}
