package action

import (
	"context"

	"github.com/trivet-project/trivet/internal/actionspec"
	"github.com/trivet-project/trivet/internal/agent/container/oci"
)

func (e *Env) archive(ctx context.Context, at *Attempt, s *actionspec.Archive) error {
	if _, err := imageOf(at.Run, s.Image, "tar"); err != nil {
		return err
	}
	return e.inRoot(ctx, at, s.Root, func(root *Root) error {
		err := e.unpackImage(ctx, at, s.Image, "tar", root.Dir, s.Path, oci.OnDisk)
		if err == nil {
			at.Note("unpacked into " + s.Path)
		}
		return err
	})
}
