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

func (r *Registration) writeAdminFile(ctx context.Context) error {
	if fileExists(AdminFile(r.Local.cfg.Dir)) {
		return r.updateAdminFile()
	}
	return r.createAdmin(ctx)
}

// updateAdminFile updates the heads' addresses and the CAs in the file.
func (r *Registration) updateAdminFile() error {
	file, err := client.ReadFile(AdminFile(r.Local.cfg.Dir))
	if err != nil {
		return err
	}
	c, err := file.Pick("")
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
