package action

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/actionspec"
	"github.com/trivet-project/trivet/internal/agent/container/rootfs"
)

// ownProgram is the program that runs this code: that of the platform, which was verified when the machine booted.
const ownProgram = "/proc/self/exe"

// head makes the installed system a head. The configuration is last: without it the program does not join, and thereby
// not with a program that is incomplete.
func (e *Env) head(ctx context.Context, at *Attempt, s *actionspec.Head) error {
	config, err := headConfig(at.Run, s.Config)
	if err != nil {
		return err
	}
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
		if err := writeProgram(tree, s.Program); err != nil {
			return fmt.Errorf("write the program: %w", err)
		}
		if err := tree.WriteFile(s.Path, config, meta); err != nil {
			return fmt.Errorf("write %s: %w", s.Path, err)
		}
		at.Note("joins as a head, as " + at.Run.Join.Address)
		return nil
	})
}

// headConfig is the configuration of a head that joins: the settings of the template, and those of the run.
func headConfig(run *trivet.Run, settings string) ([]byte, error) {
	if run.Join == nil {
		return nil, finalf(trivet.FaultConfiguration, "the heads do not let this machine join: its address is not known, or "+
			"the installer is of an earlier release than the cluster (build its platform again: trivet platform build)")
	}
	b := bytes.NewBufferString(settings)
	if len(settings) > 0 && settings[len(settings)-1] != '\n' {
		b.WriteByte('\n')
	}
	for _, setting := range []struct {
		name  string
		value any
	}{{"advertise", []string{run.Join.Address}}, {"join", run.Join.Heads}, {"token", run.Join.Token}} {
		value, err := json.Marshal(setting.value) // JSON is YAML
		if err != nil {
			return nil, finalf(trivet.FaultConfiguration, "setting %s: %w", setting.name, err)
		}
		fmt.Fprintf(b, "%s: %s\n", setting.name, value)
	}
	return b.Bytes(), nil
}

// writeProgram writes the program that runs this code into the installed system; no path: that has one.
func writeProgram(tree *rootfs.Root, path string) (err error) {
	if path == "" {
		return nil
	}
	f, err := os.Open(ownProgram)
	if err != nil {
		return err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	// It is in memory already, and mapped: a small machine needs no space for another copy.
	program, err := unix.Mmap(int(f.Fd()), 0, int(fi.Size()), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("map %s: %w", ownProgram, err)
	}
	defer func() { err = errors.Join(err, unix.Munmap(program)) }()
	return tree.WriteFile(path, program, rootfs.Meta{Mode: 0o755, UID: own(0), GID: own(0)})
}
