package heads

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/reconcile/reconciletest"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// member sets the state of every head to member, and the version of the cluster.
type member struct{ tables *state.Tables }

func (m member) Reconcile(ctx context.Context, head string) (after time.Duration, err error) {
	_, err = m.tables.Store.Update(ctx, func(tx *store.Tx) error {
		h, err := m.tables.Heads.In(tx).Get(head)
		if err != nil {
			return err
		}
		h.Status.State = trivet.HeadMember
		site := &trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName}, Status: trivet.SiteStatus{ClusterVersion: "0.3"}}
		if _, err := m.tables.Upgrades.In(tx).Get(trivet.UpgradeName); !errors.Is(err, trivet.ErrNotFound) {
			return err // one in progress holds the cluster's version
		}
		for _, t := range m.tables.Tokens.In(tx).ListBy(state.ByHead, head) { // as a removal does
			err = errors.Join(err, m.tables.Tokens.In(tx).Delete(t.Name))
		}
		return errors.Join(err, m.tables.Heads.In(tx).Put(h), m.tables.Sites.In(tx).Put(site))
	})
	return time.Second, err
}

func TestDeclaration(t *testing.T) {
	tables := storetest.New(t, state.New)
	reconciletest.Exact(t, Declaration, func(ctx context.Context, scope *store.Scope, n int) error {
		name := fmt.Sprint("head", n)
		_, err := tables.Store.Update(t.Context(), func(tx *store.Tx) error {
			return errors.Join(tables.Heads.In(tx).Put(&trivet.Head{Meta: trivet.Meta{Name: name}}),
				tables.Tokens.In(tx).Put(&trivet.Token{
					Meta: trivet.Meta{Name: fmt.Sprint("t", n), Labels: map[string]string{trivet.HeadLabel: name}},
					Spec: trivet.TokenSpec{Account: "admin", Hash: "sha256:" + strings.Repeat("0", 64)}}))
		})
		c := New(member{tables}, tables.Within(scope))
		for _, key := range c.Keys() {
			_, failed := c.Reconcile(ctx, key)
			err = errors.Join(err, failed)
		}
		return err
	})
}
