package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"iter"

	"github.com/trivet-project/trivet"
)

// Records reads and writes the records of one Go type.
type Records[T any, P Pointer[T]] struct{ kind Kind }

// Pointer is the pointer type of a record.
type Pointer[T any] interface {
	*T
	trivet.Record
}

// Of returns the records of a Go type: Of[trivet.Machine](c).
func Of[T any, P Pointer[T]](c *Client) Records[T, P] {
	info, err := trivet.LookupKind(string(trivet.KindOf(P(new(T)))))
	if err != nil {
		panic(err) // T is not a kind: a mistake in the program
	}
	return Records[T, P]{c.Kind(info)}
}

// In returns the records of another project; see [Kind.In].
func (r Records[T, P]) In(project string) Records[T, P] { return Records[T, P]{r.kind.In(project)} }

// AllProjects returns the records of all projects; see [Kind.AllProjects].
func (r Records[T, P]) AllProjects() Records[T, P] { return Records[T, P]{r.kind.AllProjects()} }

// Once returns the same records, whose changes are not retried when a response is lost; see [Kind.Once].
func (r Records[T, P]) Once() Records[T, P] { return Records[T, P]{r.kind.Once(true)} }

// Get reads one record.
func (r Records[T, P]) Get(ctx context.Context, name string) (*T, error) {
	return as[T](r.kind.Get(ctx, name))
}

// List reads all records that match the options; see [Kind.List].
func (r Records[T, P]) List(ctx context.Context, o ListOptions) (records []*T, revision int64, err error) {
	list, revision, err := r.kind.List(ctx, o)
	for _, rec := range list {
		records = append(records, rec.(any).(*T))
	}
	return records, revision, err
}

// Create creates a record; see [Kind.Create].
func (r Records[T, P]) Create(ctx context.Context, record P) (*T, error) {
	return as[T](r.kind.Create(ctx, record))
}

// Update replaces labels and spec; see [Kind.Update].
func (r Records[T, P]) Update(ctx context.Context, record P) (*T, error) {
	return as[T](r.kind.Update(ctx, record))
}

// Patch changes a record by a merge patch; see [Kind.Patch].
func (r Records[T, P]) Patch(ctx context.Context, name string, patch []byte, revision int64) (*T, error) {
	return as[T](r.kind.Patch(ctx, name, patch, revision))
}

// Delete deletes a record.
func (r Records[T, P]) Delete(ctx context.Context, name string) error {
	return r.kind.Delete(ctx, name)
}

// Modify reads a record, lets change edit it, and writes what changed as a merge patch, so that nothing is lost that
// this program does not know. After a conflict it begins again; change may run several times, but nothing is written
// twice: if a response was lost and change still edits the record, the result is an ErrUnknown.
func (r Records[T, P]) Modify(ctx context.Context, name string, change func(P) error) (*T, error) {
	var unknown error
	for {
		old, err := r.kind.Get(ctx, name)
		if err != nil {
			return nil, cmp.Or(unknown, err)
		}
		before, err := json.Marshal(old)
		if err != nil {
			return nil, err
		}
		if err := change(old.(any).(P)); err != nil {
			return nil, err
		}
		patch, err := trivet.MergePatch(before, old)
		if err != nil {
			return nil, err
		}
		if string(patch) == "{}" {
			return old.(any).(*T), nil
		}
		if unknown != nil {
			return nil, unknown
		}
		got, err := r.Patch(ctx, name, patch, old.Header().Revision)
		if errors.Is(err, trivet.ErrUnknown) {
			unknown = err
		} else if !errors.Is(err, trivet.ErrConflict) {
			return got, err
		}
	}
}

// Watch follows the records; see [Client.Watch]. The options' kind and project are set by it.
func (r Records[T, P]) Watch(ctx context.Context, o WatchOptions) iter.Seq2[Event, error] {
	o.Kinds, o.Project = []trivet.Kind{r.kind.Info.Kind}, r.kind.project
	return r.kind.c.Watch(ctx, o)
}

func as[T any](r trivet.Record, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	return r.(any).(*T), nil
}
