package blobs

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/reconcile/reconciletest"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// replica records what is fetched.
type replica struct {
	referenced bool
	missing    []trivet.BlobRef
	fetched    []string
}

func (r *replica) Ensure(_ context.Context, digest string) (bool, error) {
	r.fetched = append(r.fetched, digest)
	return r.referenced, nil
}

func (r *replica) Missing() []trivet.BlobRef { return r.missing }

func ref(digit string) trivet.BlobRef {
	return trivet.BlobRef{Digest: "sha256:" + strings.Repeat(digit, 64), Bytes: 1,
		Chunks: "sha256:" + strings.Repeat("0", 64)}
}

func TestDeclaration(t *testing.T) {
	tables := storetest.New(t, state.New)
	reconciletest.Exact(t, Declaration, func(_ context.Context, scope *store.Scope, _ int) error {
		New(&replica{}, tables.Within(scope)).Keys()
		return nil
	})
}

// A blob is fetched when a record begins to refer to it, when a head appears that may hold it, and checked again for
// as long as a record refers to it.
func TestBlobsThatRecordsReferTo(t *testing.T) {
	tables := storetest.New(t, state.New)
	r := &replica{referenced: true, missing: []trivet.BlobRef{ref("9")}}
	c := New(r, tables)
	watch := tables.Store.Watch(0, Declaration.Watches...)
	for _, tc := range []struct {
		what string
		put  func(tx *store.Tx) error
		want []string
	}{
		{"a new image", func(tx *store.Tx) error {
			return tables.Images.In(tx).Put(&trivet.Image{Meta: trivet.Meta{Project: "default", Name: "i"},
				Spec: trivet.ImageSpec{Format: "raw", Blob: ref("1")}})
		}, []string{ref("1").Digest}},
		{"a status", func(tx *store.Tx) error {
			return tables.Workflows.In(tx).Put(&trivet.Workflow{Meta: trivet.Meta{Project: "default", Name: "w"},
				Spec: trivet.WorkflowSpec{Machine: "m"}})
		}, nil},
		{"a head", func(tx *store.Tx) error {
			return tables.Heads.In(tx).Put(&trivet.Head{Meta: trivet.Meta{Name: "head1"}})
		}, []string{ref("9").Digest}},
	} {
		_, err := tables.Store.Update(t.Context(), tc.put)
		events, failed := watch.Next(t.Context())
		if err := errors.Join(err, failed); err != nil || len(events) != 1 {
			t.Fatalf("%s: %v, %v", tc.what, events, err)
		}
		if got := c.Affected(events[0]); !slices.Equal(got, tc.want) {
			t.Errorf("%s: concerns %v, want %v", tc.what, got, tc.want)
		}
	}
	if keys := c.Keys(); !slices.Equal(keys, []string{ref("1").Digest}) {
		t.Errorf("keys %v", keys)
	}
	for _, referenced := range []bool{true, false} {
		r.referenced = referenced
		if after, err := c.Reconcile(t.Context(), ref("1").Digest); err != nil ||
			(after == checkInterval) != referenced || len(r.fetched) == 0 {
			t.Errorf("referenced: %t: again after %s, %v", referenced, after, err)
		}
	}
}
