package state

import (
	"testing"
	"time"

	"github.com/trivet-project/trivet/internal/learnt"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// A save whose outcome was not known counts once, whether it was written or not.
func TestUnknownSaveCountsOnce(t *testing.T) {
	for name, written := range map[string]bool{"written": true, "not written": false} {
		t.Run(name, func(t *testing.T) {
			l := NewLearnt(storetest.New(t, New), "head0")
			part := &learnt.Book{}
			part.Add(learnt.Run{Model: "Dell", Succeeded: true})
			l.saving = &saving{part.Encode(), part}
			if written {
				err := l.tables.Store.PutDocument(t.Context(), LearntDocument, "head0", store.Document{}, l.saving.doc)
				if err != nil {
					t.Fatal(err)
				}
			}
			l.Add(learnt.Run{Model: "Dell", Succeeded: true})
			for range 2 {
				if err := l.Exchange(t.Context(), time.Unix(0, 0)); err != nil {
					t.Fatal(err)
				}
				if got := l.Book().Models["Dell"].Runs; got != 2 {
					t.Errorf("%v runs are known, want 2", got)
				}
			}
		})
	}
}
