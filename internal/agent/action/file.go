package action

import (
	"context"
	"fmt"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/actionspec"
	"github.com/trivet-project/trivet/internal/agent/container/rootfs"
)

func (e *Env) file(ctx context.Context, at *Attempt, s *actionspec.File) error {
	return e.inRoot(ctx, at, s.Root, func(root *Root) error {
		tree, err := rootfs.Open(root.Dir)
		if err != nil {
			return err
		}
		defer tree.Close()
		uid, _, err := tree.User(s.Owner.User)
		if err != nil {
			return finalf(trivet.FaultConfiguration, "write %s: %w", s.Path, err)
		}
		gid, err := tree.Group(s.Owner.Group)
		if err != nil {
			return finalf(trivet.FaultConfiguration, "write %s: %w", s.Path, err)
		}
		if err := tree.WriteFile(s.Path, s.Bytes(), rootfs.Meta{Mode: uint32(s.Mode), UID: own(uid),
			GID: own(gid)}); err != nil {
			return fmt.Errorf("write into the installed system: %w", err)
		}
		return nil
	})
}
