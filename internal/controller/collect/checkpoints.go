package collect

import (
	"context"
	"errors"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/state"
)

// checkpoints deletes the checkpoints of heads that are no members: others have counted their waits since.
func (c *Controller) checkpoints(ctx context.Context) error {
	documents, err := c.Tables.Store.Documents(ctx, state.CheckpointDocument)
	if err != nil {
		return err
	}
	for head, d := range documents {
		h, err := c.Tables.Heads.GetShared(head)
		if err == nil && h.Status.State != trivet.HeadRemoved || err != nil && !errors.Is(err, trivet.ErrNotFound) {
			continue
		}
		err = c.Tables.Store.DeleteDocument(ctx, state.CheckpointDocument, d)
		if err != nil && !errors.Is(err, trivet.ErrConflict) {
			return err
		}
	}
	return nil
}
