package action

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/actionspec"
	"github.com/trivet-project/trivet/internal/agent/container/rootfs"
)

// kexec loads the installed system's kernel. It is started when everything is reported.
func (e *Env) kexec(ctx context.Context, at *Attempt, s *actionspec.Kexec) error {
	return e.inRoot(ctx, at, s.Root, func(root *Root) error {
		tree, err := rootfs.Open(root.Dir)
		if err != nil {
			return err
		}
		defer tree.Close()
		kernel, err := firstOf(tree, s.Kernel, "/vmlinuz", "/boot/vmlinuz")
		if err != nil {
			return finalf(trivet.FaultConfiguration, "kernel of the installed system: %w", err)
		}
		defer kernel.Close()
		initrd, err := firstOf(tree, s.Initrd, "/initrd.img", "/boot/initrd.img")
		switch {
		case err == nil:
			defer initrd.Close()
		case s.Initrd != "":
			return finalf(trivet.FaultConfiguration, "initrd of the installed system: %w", err)
		default:
			initrd = nil // it may have none
		}
		cmdline := s.Cmdline
		if cmdline == "" {
			if cmdline, err = defaultCmdline(root); err != nil {
				return err
			}
		}
		fmt.Fprintf(at.Log, "kernel %s with: %s\n", kernel.Name(), cmdline)
		return e.LoadKernel(kernel, initrd, cmdline)
	})
}

// firstOf opens the named file or, without a name, the first of the usual ones.
func firstOf(tree *rootfs.Root, name string, usual ...string) (*os.File, error) {
	if name != "" {
		return tree.OpenFile(name, os.O_RDONLY, 0)
	}
	for _, name := range usual {
		if f, err := tree.OpenFile(name, os.O_RDONLY, 0); !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
	}
	return nil, fmt.Errorf("%w: %s", trivet.ErrNotFound, strings.Join(usual, ", "))
}

// defaultCmdline boots the root that was mounted, with the consoles that the installer has.
func defaultCmdline(root *Root) (string, error) {
	if root.UUID == "" {
		return "", finalf(trivet.FaultConfiguration, "the root file system has no UUID to boot by; write cmdline")
	}
	words := []string{"root=UUID=" + root.UUID, "ro"}
	b, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return "", err
	}
	for _, w := range strings.Fields(string(b)) {
		if strings.HasPrefix(w, "console=") {
			words = append(words, w)
		}
	}
	return strings.Join(words, " "), nil
}
