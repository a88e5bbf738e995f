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
		meta, err := metaOf(tree, s.Path, s.Mode, s.Owner)
		if err != nil {
			return err
		}
		if err := tree.WriteFile(s.Path, s.Bytes(), meta); err != nil {
			return fmt.Errorf("write into the installed system: %w", err)
		}
		return nil
	})
}

// metaOf returns the mode and the owner of a file, as the installed system knows that one.
func metaOf(tree *rootfs.Root, path string, mode actionspec.Mode, owner actionspec.Owner) (m rootfs.Meta, err error) {
	uid, _, err := tree.User(owner.User)
	if err != nil {
		return m, finalf(trivet.FaultConfiguration, "write %s: %w", path, err)
	}
	gid, err := tree.Group(owner.Group)
	if err != nil {
		return m, finalf(trivet.FaultConfiguration, "write %s: %w", path, err)
	}
	return rootfs.Meta{Mode: uint32(mode), UID: own(uid), GID: own(gid)}, nil
}
