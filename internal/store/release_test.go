package store_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// Rack and Shelf are kinds of a later release: all of Rack, and the fields spec.depth and spec.boards[].width of Shelf.
type Rack struct{ trivet.Machine }

type Shelf struct {
	trivet.Meta
	Spec struct {
		Depth  int `json:"depth,omitempty"`
		Boards []struct {
			Width int `json:"width,omitempty"`
		} `json:"boards,omitempty"`
	} `json:"spec"`
}

func (*Shelf) Validate() error { return nil }

func TestLaterReleaseIsRefusedUntilAllHeadsHaveIt(t *testing.T) {
	t.Parallel()
	s := store.New(storetest.Member(t).Client(), store.Options{Cipher: storetest.Cipher()})
	sites := store.NewTable[trivet.Site](s)
	s.Register(trivet.KindInfo{Kind: "Rack", Since: "0.10", New: func() trivet.Record { return &Rack{} }})
	s.Register(trivet.KindInfo{Kind: "Shelf", FieldsSince: map[string]trivet.Release{"spec.depth": "0.10", "spec.boards.width": "0.10"},
		New: func() trivet.Record { return &Shelf{} }})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	put := func(r trivet.Record) error {
		_, err := s.Update(t.Context(), func(tx *store.Tx) error { return tx.PutRecord(r) })
		return err
	}
	rack := func() trivet.Record { return &Rack{trivet.Machine{Meta: trivet.Meta{Name: "r1"}}} }
	shelf := func(depth int) trivet.Record {
		r := &Shelf{Meta: trivet.Meta{Name: "s1"}}
		r.Spec.Depth = depth
		return r
	}
	putRaw := func(doc string) error {
		_, err := s.Update(t.Context(), func(tx *store.Tx) error { return tx.PutRaw("Shelf", "s1", []byte(doc)) })
		return err
	}
	raw := func() error { return putRaw(`{"spec":{"depth":3}}`) }
	inList := func() error { return putRaw(`{"spec":{"boards":[{},{"width":9}]}}`) }
	for _, release := range []trivet.Release{"", "0.9"} {
		if _, err := s.Update(t.Context(), func(tx *store.Tx) error {
			return sites.In(tx).Put(&trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
				Status: trivet.SiteStatus{ClusterVersion: release}})
		}); err != nil {
			t.Fatal(err)
		}
		for name, err := range map[string]error{"kind": put(rack()), "field": put(shelf(3)), "raw field": raw(),
			"field in a list": inList()} {
			if !errors.Is(err, trivet.ErrConflict) || !strings.Contains(err.Error(), "0.10") {
				t.Errorf("%s at release %q: %v", name, release, err)
			}
		}
		if err := errors.Join(put(shelf(0)), putRaw(`{"spec":{"boards":[{}]}}`), putRaw(`{"spec":{"boards":[]}}`),
			putRaw(`{"spec":{"boards":null}}`)); err != nil {
			t.Errorf("without the fields: %v", err)
		}
	}
	if _, err := s.Update(t.Context(), func(tx *store.Tx) error {
		return sites.In(tx).Put(&trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
			Status: trivet.SiteStatus{ClusterVersion: "0.10"}})
	}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(put(rack()), put(shelf(3)), raw(), inList()); err != nil {
		t.Errorf("once all heads have the release: %v", err)
	}
}
