package state

import (
	"bytes"
	"context"
	"errors"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/uptime"
)

// CheckpointDocument is the name of the documents with the heads' checkpoints: an [uptime.Checkpoint] each.
const CheckpointDocument = "checkpoint"

// Checkpoints are the checkpoints of all heads. They are used by one goroutine.
type Checkpoints struct {
	store *store.Store
	head  string
	own   store.Document // as it was read last
}

// NewCheckpoints returns the checkpoints in a store. head is the name of this head.
func NewCheckpoints(s *store.Store, head string) *Checkpoints {
	return &Checkpoints{store: s, head: head}
}

// Load returns the checkpoints of all heads as one. A document that cannot be read is ignored.
func (c *Checkpoints) Load(ctx context.Context) (uptime.Checkpoint, error) {
	documents, err := c.store.Documents(ctx, CheckpointDocument)
	if err != nil {
		return nil, err
	}
	c.own = documents[c.head]
	all := uptime.Checkpoint{}
	for _, d := range documents {
		if d.Err == nil {
			_ = all.Merge(d.Value) // a later version's: its waits are counted by this head from now on
		}
	}
	return all, nil
}

// Save replaces this head's checkpoint, in one transaction. It writes nothing where nothing has changed since the last
// Load. One that another process has written since is left until the next Load.
func (c *Checkpoints) Save(ctx context.Context, cp uptime.Checkpoint) error {
	value := cp.Encode()
	if bytes.Equal(value, c.own.Value) || len(cp) == 0 && c.own.Value == nil && c.own.Err == nil {
		return nil
	}
	err := c.store.PutDocument(ctx, CheckpointDocument, c.head, c.own, value)
	if errors.Is(err, trivet.ErrConflict) {
		return nil
	}
	return err
}
