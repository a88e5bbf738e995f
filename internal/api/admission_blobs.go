package api

import (
	"context"
	"errors"

	"github.com/trivet-project/trivet"
)

// Whether a head holds a record's content is found out by requests to other heads, which a transaction must not send:
// the transaction ends with what it needs to know, and runs again once that is known.

// heldBlobs are the blobs that a head was found to hold.
type heldBlobs map[trivet.BlobRef]bool

// unknownBlob is the error of a transaction that needs to know whether a head holds a blob.
type unknownBlob struct {
	field string
	ref   trivet.BlobRef
}

func (u *unknownBlob) Error() string { return u.field + ": not known yet" }

// needBlob requires that a head holds a blob.
func (c *change) needBlob(field string, ref trivet.BlobRef) error {
	if c.held[ref] {
		return nil
	}
	return &unknownBlob{field, ref}
}

// findBlobs runs a write until it knows all blobs that it needs.
func (h *Handler) findBlobs(ctx context.Context, held heldBlobs, write func() error) error {
	for {
		err := write()
		var unknown *unknownBlob
		if !errors.As(err, &unknown) {
			return err
		}
		if err := h.hasBlob(ctx, unknown.field, unknown.ref); err != nil {
			return err
		}
		held[unknown.ref] = true
	}
}
