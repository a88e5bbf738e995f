package action

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/actionspec"
	"github.com/trivet-project/trivet/internal/agent/action/block"
	"github.com/trivet-project/trivet/internal/agent/action/gpt"
	"github.com/trivet-project/trivet/internal/agent/container/sandbox"
)

func (e *Env) format(ctx context.Context, at *Attempt, s *actionspec.Format) error {
	path, err := e.disk(at, s.Disk)
	if err != nil {
		return err
	}
	id := gpt.DeriveGUID(at.Run.UID, path, strconv.Itoa(s.Partition), "fs")
	if s.FS == "swap" {
		err = formatSwap(path, s, id)
	} else {
		err = e.mkfs(ctx, at, path, s, id)
	}
	if err == nil {
		at.Note(fmt.Sprintf("%s on partition %d of %s, UUID %s", s.FS, s.Partition, path, id))
	}
	return err
}

func formatSwap(path string, s *actionspec.Format, id gpt.GUID) (err error) {
	d, err := block.OpenPart(path, s.Partition)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return makeSwap(d, id, s.Label)
}

func (e *Env) mkfs(ctx context.Context, at *Attempt, path string, s *actionspec.Format, id gpt.GUID) (err error) {
	node, release, err := block.Attach(path, s.Partition)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	args := append(append(mkfsArgs(s, id), s.Options...), node)
	fault := trivet.FaultMachine
	if len(s.Options) > 0 { // which may be wrong
		fault = trivet.FaultConfiguration
	}
	return e.run(ctx, at, fault, sandbox.Spec{Args: args})
}

// mkfsArgs returns the mkfs program of a file system and its arguments.
func mkfsArgs(s *actionspec.Format, id gpt.GUID) []string {
	switch s.FS {
	case "vfat":
		args := []string{"mkfs.vfat", "-F", "32", "-i", id.String()[:8]}
		if s.Label != "" {
			args = append(args, "-n", s.Label)
		}
		return args
	case "xfs":
		return label([]string{"mkfs.xfs", "-f", "-q", "-m", "uuid=" + id.String()}, s.Label)
	}
	return label([]string{"mkfs.ext4", "-F", "-q", "-U", id.String()}, s.Label)
}

func label(args []string, name string) []string {
	if name == "" {
		return args
	}
	return append(args, "-L", name)
}
