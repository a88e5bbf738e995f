package action

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/actionspec"
	"github.com/trivet-project/trivet/internal/agent/action/block"
	"github.com/trivet-project/trivet/internal/agent/container/sandbox"
)

// member is a device that an array or a volume group is made of.
type member struct {
	node  string
	size  int64
	holds block.Content
}

// members returns the devices of an argument.
func (e *Env) members(at *Attempt, devices []actionspec.Target) ([]member, error) {
	var out []member
	for _, t := range devices {
		path, err := e.disk(at, t.Disk)
		if err != nil {
			return nil, err
		}
		m, err := examine(path, t.Partition)
		if err != nil {
			return nil, err
		}
		for i, other := range out {
			if sameDevice(other.node, m.node) {
				return nil, finalf(trivet.FaultConfiguration, "devices[%d], %s, and devices[%d], %s, are one device", i,
					other.node, len(out), m.node)
			}
		}
		out = append(out, m)
	}
	return out, nil
}

func examine(path string, partition int) (m member, err error) {
	if m.node, err = block.Node(path, partition); err != nil {
		return m, err
	}
	d, err := block.OpenReadOnly(m.node)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if !d.IsNode() {
		return m, finalf(trivet.FaultConfiguration, "%s is no block device, which an array or a volume group needs", m.node)
	}
	m.size, m.holds = d.Size(), d.Examine()
	return m, nil
}

func nodes(members []member) (out []string) {
	for _, m := range members {
		out = append(out, m.node)
	}
	return out
}

// mustBeFree fails where a device holds what is not the action's own. ids are those of its own, by device.
func mustBeFree(members []member, kind string, ids []string) error {
	for i, m := range members {
		if m.holds != (block.Content{}) && m.holds != (block.Content{Kind: kind, ID: ids[i]}) {
			return finalf(trivet.FaultConfiguration, "%s holds %s, which is not of this run; write an action wipe of its "+
				"disk before this action, or partition its disk", m.node, m.holds)
		}
	}
	return nil
}

// owned counts the devices that hold what is the action's own.
func owned(members []member, kind string, ids []string) (n int) {
	for i, m := range members {
		if m.holds == (block.Content{Kind: kind, ID: ids[i]}) {
			n++
		}
	}
	return n
}

// noUdev lets mdadm create links in /dev by itself. /etc/lvm/lvm.conf of the platform does it for LVM.
const noUdev = "MDADM_NO_UDEV=1"

// tool runs a program that manages storage. Its command line and its output are in the log.
func (e *Env) tool(ctx context.Context, at *Attempt, blame trivet.FailureType, args ...string) error {
	_, err := e.toolOutput(ctx, at, blame, nil, args)
	return err
}

// toolLines returns the lines that such a program prints, without blanks around them.
func (e *Env) toolLines(ctx context.Context, at *Attempt, args ...string) (lines []string, err error) {
	var out bytes.Buffer
	text, err := e.toolOutput(ctx, at, trivet.FaultMachine, &out, args)
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines, err
}

func (e *Env) toolOutput(ctx context.Context, at *Attempt, blame trivet.FailureType, out *bytes.Buffer,
	args []string) (text string, err error) {
	fmt.Fprintln(at.Log, "+", strings.Join(args, " "))
	s := sandbox.Spec{Args: args, Env: []string{noUdev, installerPath}}
	if out != nil {
		s.Stdout = out
	}
	err = e.run(ctx, at, blame, s)
	var start *sandbox.StartError
	if errors.As(err, &start) && start.Step == findProgram {
		return "", finalf(trivet.FaultConfiguration, "the platform that this machine has booted has no %s: it is of a "+
			"release before 0.3.1; build another (trivet platform build), import it, and make it the default", args[0])
	}
	if out != nil {
		text = out.String()
	}
	return text, err
}
