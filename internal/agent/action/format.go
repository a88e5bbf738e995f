package action

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/agent/action/block"
	"github.com/trivet-project/trivet/internal/agent/action/gpt"
	"github.com/trivet-project/trivet/internal/agent/action/spec"
	"github.com/trivet-project/trivet/internal/agent/sandbox"
)

func (e *Env) format(ctx context.Context, at *Attempt, s *spec.Format) (err error) {
	path, err := e.Host.Disk(s.Disk.Disk)
	if err != nil {
		return err
	}
	node, release, err := block.Attach(path, s.Partition)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	args := mkfs(s, gpt.DeriveGUID(at.Run.UID, path, strconv.Itoa(s.Partition), "fs"))
	args = append(append(args, s.Options...), node)
	err = e.run(ctx, at, trivet.FaultMachine, sandbox.Spec{Args: args})
	if err == nil {
		at.Note(fmt.Sprintf("%s on partition %d of %s", s.FS, s.Partition, path))
	}
	return err
}

// mkfs is the program that makes a file system, and its arguments.
func mkfs(s *spec.Format, id gpt.GUID) []string {
	switch s.FS {
	case "vfat":
		args := []string{"mkfs.vfat", "-F", "32", "-i", id.String()[:8]}
		if s.Label != "" {
			args = append(args, "-n", s.Label)
		}
		return args
	case "xfs":
		return label([]string{"mkfs.xfs", "-f", "-q", "-m", "uuid=" + id.String()}, s.Label)
	case "swap":
		return label([]string{"mkswap", "-f", "-U", id.String()}, s.Label)
	}
	return label([]string{"mkfs.ext4", "-F", "-q", "-U", id.String()}, s.Label)
}

func label(args []string, name string) []string {
	if name == "" {
		return args
	}
	return append(args, "-L", name)
}
