package membership

import (
	"errors"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/store"
)

// The file of a head's administrator has a token that the cluster accepts, after each start.
func TestAdminFile(t *testing.T) {
	t.Parallel()
	r := &records{t, newRecords(t)}
	r.putHeads()
	local := &Local{cfg: Config{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}, data: dataFile{Name: "head0"}}
	local.root.Store(&must(auth.Init(filepath.Join(t.TempDir(), "keys"), "c1"))(t).CA.Root)
	reg := &Registration{Records: r.Records, Local: local}
	start := func() string {
		t.Helper()
		r.must(reg.writeAdminFile(t.Context()))
		token := must(reg.readAdminFile())(t).Token
		if ok, err := reg.accepts(t.Context(), token); !ok || err != nil {
			t.Fatalf("the token of the file is not accepted: %v", err)
		}
		return token
	}
	token := start()
	if again := start(); again != token {
		t.Error("a second start creates another token")
	}
	for what, change := range map[string]func(tx *store.Tx) error{
		"the token is revoked": func(tx *store.Tx) error {
			return r.Tokens.In(tx).Delete(must(auth.ParseToken(token))(t))
		},
		"the token has another secret": func(tx *store.Tx) error {
			id := must(auth.ParseToken(token))(t)
			k, err := r.Tokens.In(tx).Get(id)
			if err == nil {
				_, _, k.Spec.Hash = auth.NewToken()
				err = r.Tokens.In(tx).Put(k)
			}
			return err
		},
		"the account is a viewer": func(tx *store.Tx) error {
			a, err := r.Accounts.In(tx).Get(adminAccount)
			if err == nil {
				a.Spec.Role = trivet.AccountViewer
				err = r.Accounts.In(tx).Put(a)
			}
			return err
		},
		"the account is another one": func(tx *store.Tx) error {
			return r.Accounts.In(tx).Delete(adminAccount)
		},
	} {
		r.write(change)
		if ok, err := reg.accepts(t.Context(), token); ok || err != nil {
			t.Errorf("%s: accepted, %v", what, err)
		}
		if again := start(); again == token {
			t.Errorf("%s: a start creates no other token", what)
		} else {
			token = again
		}
	}
	r.must(r.Remove(t.Context(), "head1"))
	local.data.Name = "head1"
	r.write(func(tx *store.Tx) error { return r.Tokens.In(tx).Delete(must(auth.ParseToken(token))(t)) })
	r.must(r.setRemoved(t.Context(), "head1"))
	if err := reg.writeAdminFile(t.Context()); !errors.Is(err, trivet.ErrForbidden) {
		t.Errorf("a head that was removed gets a token: %v", err)
	}
}
