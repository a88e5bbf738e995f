package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/trivet-project/trivet"
)

// ErrScope means that code reads or writes a kind which it has not declared. It is a defect of that code.
var ErrScope = errors.New("kind not declared")

// Scope is the kinds that one part of the program reads and writes. It limits transactions, by [WithScope], and local
// reads, by [Table.Within]. What is written may be read as well.
type Scope struct {
	owner         string
	reads, writes []trivet.Kind
}

// NewScope returns the scope of a part of the program, which errors name.
func NewScope(owner string, reads, writes []trivet.Kind) *Scope {
	return &Scope{owner: owner, reads: reads, writes: writes}
}

type scopeKey struct{}

// WithScope returns a context whose transactions fail with [ErrScope] when they read or write a record of another
// kind, whether or not the function returns the error.
func WithScope(ctx context.Context, s *Scope) context.Context {
	return context.WithValue(ctx, scopeKey{}, s)
}

func (s *Scope) mayRead(kind trivet.Kind) error {
	if s == nil || slices.Contains(s.reads, kind) || slices.Contains(s.writes, kind) {
		return nil
	}
	return fmt.Errorf("%w: %s reads %s", ErrScope, s.owner, kind)
}

func (s *Scope) mayWrite(kind trivet.Kind) error {
	if s == nil || slices.Contains(s.writes, kind) {
		return nil
	}
	return fmt.Errorf("%w: %s writes %s", ErrScope, s.owner, kind)
}

// Within returns the table for local reads within a scope: each read panics where the scope does not have the table's
// kind.
func (t *Table[T]) Within(s *Scope) *Table[T] {
	return &Table[T]{store: t.store, info: t.info, scope: s}
}

// checkRead panics for a table that the scope does not have: an empty result would hide the defect.
func (t *Table[T]) checkRead() {
	if err := t.scope.mayRead(t.info.kind); err != nil {
		panic(err)
	}
}

// run runs a transaction's function within the scope of ctx.
func (tx *Tx) run(ctx context.Context, fn func(tx *Tx) error) error {
	tx.scope, _ = ctx.Value(scopeKey{}).(*Scope)
	err := fn(tx)
	if err == nil {
		err = tx.beforeCommit(ctx)
	}
	if tx.outOfScope != nil {
		return tx.outOfScope
	}
	return err
}

func (tx *Tx) checkRead(info *kindInfo) error { return tx.noteScope(tx.scope.mayRead(info.kind)) }

func (tx *Tx) checkWrite(info *kindInfo) error { return tx.noteScope(tx.scope.mayWrite(info.kind)) }

func (tx *Tx) noteScope(err error) error {
	if err != nil && tx.outOfScope == nil {
		tx.outOfScope = err
	}
	return err
}
