package store

import (
	"context"
	"strings"

	"github.com/trivet-project/trivet"
)

type beforeCommitKey struct{}

// BeforeCommit returns a context whose transactions call f at the end of their function, where that succeeded and
// writes. f is part of the function: it may run several times, may write, and its error ends the transaction.
func BeforeCommit(ctx context.Context, f func(tx *Tx) error) context.Context {
	return context.WithValue(ctx, beforeCommitKey{}, f)
}

func (tx *Tx) beforeCommit(ctx context.Context) error {
	f, ok := ctx.Value(beforeCommitKey{}).(func(*Tx) error)
	if !ok || len(tx.order) == 0 {
		return nil
	}
	return f(tx)
}

// AfterCommit lets f run once, when the transaction that this run of its function made is committed, for what must not
// happen within the function. It does not run where the outcome stays unknown.
func (tx *Tx) AfterCommit(f func()) { tx.committed = append(tx.committed, f) }

func (tx *Tx) wasCommitted() {
	for _, f := range tx.committed {
		f()
	}
}

// Change is one record that a transaction writes.
type Change struct {
	Kind      trivet.Kind
	Name, UID string // Name is the full one
	Old, New  []byte // JSON without revision; nil: it does not exist
}

// Changes returns the records that the transaction has written so far, in the order of the first write of each.
func (tx *Tx) Changes() (changes []Change) {
	for _, key := range tx.order {
		part, name, ok := splitKey(key)
		info := tx.store.kinds[part]
		if !ok || info == nil || tx.writes[key].end != "" {
			continue
		}
		c, w := Change{Kind: info.kind, Name: name, New: tx.writes[key].doc}, tx.writes[key]
		old := tx.entry(key)
		if old != nil {
			c.Old = old.full()
		}
		if rec := w.rec; rec != nil {
			c.UID = rec.Header().UID
		} else if was := old.record(); was != nil {
			c.UID = was.Header().UID
		}
		changes = append(changes, c)
	}
	return changes
}

// isCold reports whether a key is that of cold data.
func isCold(key string) bool { return strings.HasPrefix(key, coldPrefix) || isHistory(key) }
