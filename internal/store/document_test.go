package store_test

import (
	"errors"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// A document is replaced where it is as it was read, by owner, and no watch of records sees it.
func TestDocument(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	h := open(t, m.Client(), store.Options{Head: "head0"})
	far := open(t, m.Client(), store.Options{Head: "head1"})
	read := func() map[string]store.Document {
		t.Helper()
		all, err := far.Documents(t.Context(), "d")
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	put := func(owner string, was store.Document, value string, want error) {
		t.Helper()
		if err := h.PutDocument(t.Context(), "d", owner, was, []byte(value)); !errors.Is(err, want) {
			t.Fatalf("put of %s: %v, want %v", value, err, want)
		}
	}
	put("a", store.Document{}, "1", nil)
	put("b", store.Document{}, "2", nil)
	first := read()["a"]
	put("a", store.Document{}, "3", trivet.ErrConflict)
	put("a", first, "4", nil)
	put("a", first, "5", trivet.ErrConflict)
	if all := read(); len(all) != 2 || string(all["a"].Value) != "4" || string(all["b"].Value) != "2" {
		t.Errorf("stored: %v", all)
	}
	if err := h.DeleteDocument(t.Context(), "d", first); !errors.Is(err, trivet.ErrConflict) {
		t.Errorf("the deletion of a document that was written since: %v", err)
	}
	if err := h.DeleteDocument(t.Context(), "d", read()["a"]); err != nil || len(read()) != 1 {
		t.Errorf("after the deletion: %v, %v", read(), err)
	}
	put("a", store.Document{}, "6", nil)
	put("c", store.Document{}, "7", nil)
	c := read()["c"]
	put("c", c, "8", nil)
	if err := h.PutDocument(t.Context(), "d", "a", read()["a"], []byte("9"), c); !errors.Is(err, trivet.ErrConflict) {
		t.Errorf("a put that deletes what was written since: %v", err)
	}
	if err := h.PutDocument(t.Context(), "d", "a", read()["a"], []byte("9"), read()["c"], read()["b"]); err != nil {
		t.Fatal(err)
	}
	if all := read(); len(all) != 1 || string(all["a"].Value) != "9" {
		t.Errorf("after a put that deletes others: %v", all)
	}
	if err := h.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if events, _ := h.Held(); events != 0 {
		t.Errorf("%d events of documents", events)
	}
}

// A document that was not written by a head is not read, and its owner may replace it.
func TestForgedDocument(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	h := open(t, m.Client(), store.Options{Head: "head0"})
	if _, err := m.Client().Put(t.Context(), "/trivet-document/d/a", "forged"); err != nil {
		t.Fatal(err)
	}
	all, err := h.Documents(t.Context(), "d")
	if err != nil || !errors.Is(all["a"].Err, store.ErrRefused) || all["a"].Value != nil {
		t.Fatalf("read: %v, %v", all, err)
	}
	if err := h.PutDocument(t.Context(), "d", "a", all["a"], []byte("own")); err != nil {
		t.Fatal(err)
	}
	if all, err = h.Documents(t.Context(), "d"); err != nil || string(all["a"].Value) != "own" {
		t.Errorf("read: %v, %v", all, err)
	}
}
