package action

import (
	"context"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet/internal/actionspec"
	"github.com/trivet-project/trivet/internal/agent/container/sandbox"
)

func (e *Env) command(ctx context.Context, at *Attempt, s *actionspec.Command) error {
	args := s.Args
	if s.Script != "" {
		args = []string{"/bin/sh", "-ec", s.Script}
	}
	box := sandbox.Spec{Args: args, Env: environment(at, nil, s.Env)}
	if s.In == actionspec.InInstaller {
		box.Mounts = []sandbox.Mount{{Source: "proc", Target: "/proc", Type: "proc"}}
		return e.run(ctx, at, s.Blame, box)
	}
	return e.inRoot(ctx, at, s.Root, func(root *Root) error {
		return e.run(ctx, at, s.Blame, inside(root, box))
	})
}

// inside runs a program in the installed system as if that had booted: with its own /run, and the installer's
// devices and name servers.
func inside(root *Root, box sandbox.Spec) sandbox.Spec {
	box.Root = root.Dir
	box.Mounts = append(sandbox.System(true),
		sandbox.Mount{Source: "run", Target: "/run", Type: "tmpfs", Flags: unix.MS_NOSUID | unix.MS_NODEV,
			Data: "mode=755"},
		resolvers(),
	)
	return box
}

// resolvers mounts the installer's resolv.conf, if the other system has one.
func resolvers() sandbox.Mount {
	m := sandbox.Bind("/etc/resolv.conf", "/etc/resolv.conf")
	m.Optional = true
	return m
}

// environment returns the environment of a template's program: defaults, then the action's variables.
func environment(at *Attempt, defaults []string, env map[string]string) []string {
	out := append([]string{
		"HOME=/root", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive", installerPath,
		"TRIVET_MACHINE=" + at.Run.Spec.Machine, "TRIVET_WORKFLOW=" + at.Run.Workflow,
		"TRIVET_ACTION=" + at.Action.Name,
	}, defaults...)
	for name, value := range env {
		out = append(out, name+"="+value)
	}
	return lastWins(out)
}

// lastWins removes all but the last value of each variable.
func lastWins(env []string) []string {
	last := map[string]int{}
	for i, e := range env {
		name, _, _ := strings.Cut(e, "=")
		last[name] = i
	}
	var out []string
	for i, e := range env {
		if name, _, _ := strings.Cut(e, "="); last[name] == i {
			out = append(out, e)
		}
	}
	return out
}
