package collect

import (
	"context"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// A pass through the records of a key is made in slices, so that it takes little of a head at any time, also right
// after its start: of 100,000 records, 500 every 20 s, all in an hour.
const (
	slice      = 500
	slicePause = 20 * time.Second
	// busyPause follows a slice in which there was something to do: there may be much of it.
	busyPause = time.Second
)

// pass is how far the pass of each key is. The controller has one worker.
type pass struct {
	after map[string]string // by key: the name after which the next slice begins
	// Of the present slice:
	more bool // the pass has not ended
	busy bool // something was changed
}

// begin begins a slice.
func (p *pass) begin() { p.more, p.busy = false, false }

// ended ends a slice: the next one begins after a name, or with the first record.
func (p *pass) ended(key, after string, more bool) {
	if p.more = more; !more {
		after = ""
	}
	p.after[key] = after
}

// pause is the time until the next slice, or the next pass.
func (p *pass) pause() time.Duration {
	switch {
	case p.more && p.busy:
		return busyPause
	case p.more:
		return slicePause
	}
	return interval
}

// each calls do for the next slice of the shared records of a kind. One that fails is repeated.
func each[T any](ctx context.Context, p *pass, key string, from *store.Table[T], do func(*T) error) error {
	after, n := p.after[key], 0
	for r := range from.After(after, slice) {
		if err := do(r); err != nil {
			return err
		}
		after, n = any(r).(trivet.Record).Header().FullName(), n+1
	}
	p.ended(key, after, n == slice)
	return ctx.Err()
}
