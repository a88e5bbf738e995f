package action

import (
	"context"
	"errors"
	"fmt"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/actionspec"
	"github.com/trivet-project/trivet/internal/agent/container/oci"
	"github.com/trivet-project/trivet/internal/agent/container/sandbox"
)

func (e *Env) container(ctx context.Context, at *Attempt, s *actionspec.Container) (err error) {
	if err := os.MkdirAll(e.Dir, 0o700); err != nil {
		return err
	}
	work, err := os.MkdirTemp(e.Dir, "container-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	img, err := e.containerImage(ctx, at, s, work)
	if err != nil {
		return err
	}
	root := work + "/root"
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	if err := oci.Unpack(ctx, img, root, func(n int64) { at.Progress(n, 0, "bytes") }); err != nil {
		return imageFault(ctx, err)
	}
	p, err := oci.ProcessOf(img, root, s.Command, s.Args)
	if err != nil {
		return finalf(trivet.FaultImage, "%w", err)
	}
	box := sandbox.Spec{
		Args: p.Args, Env: environment(at, p.Env, s.Env), Dir: p.Dir, UID: p.UID, GID: p.GID, Root: root,
		Hostname: at.Run.Spec.Machine, NoNet: s.Net == "none",
		Mounts: append(sandbox.System(s.Devices), touch(resolvers())),
	}
	if s.Mount == "" {
		return e.run(ctx, at, s.Blame, box)
	}
	return e.inRoot(ctx, at, s.Root, func(installed *Root) error {
		box.Mounts = append(box.Mounts, sandbox.Bind(installed.Dir, s.Mount))
		return e.run(ctx, at, s.Blame, box)
	})
}

// touch makes a mount create its missing target: a container's root is a copy.
func touch(m sandbox.Mount) sandbox.Mount {
	if _, err := os.Stat(m.Source); err == nil {
		m.Optional = false
	}
	return m
}

// containerImage finds the image: in a registry, or a blob with an OCI layout, which is unpacked first.
func (e *Env) containerImage(ctx context.Context, at *Attempt, s *actionspec.Container, work string) (v1.Image, error) {
	if s.Ref != "" {
		img, err := oci.Pull(ctx, s.Ref, oci.Registry{PlainHTTP: s.PlainHTTP, CA: s.CA})
		switch {
		case errors.Is(err, trivet.ErrInvalid), errors.Is(err, trivet.ErrNotFound), errors.Is(err, trivet.ErrForbidden):
			return nil, finalf(trivet.FaultConfiguration, "%w", err)
		}
		return img, Fault(trivet.FaultNetwork, err)
	}
	layout := work + "/layout"
	if err := os.Mkdir(layout, 0o700); err != nil {
		return nil, err
	}
	if err := e.unpackImage(ctx, at, s.Image, "oci", layout, ""); err != nil {
		return nil, err
	}
	img, err := oci.Layout(layout)
	if err != nil {
		return nil, finalf(trivet.FaultImage, "%w", err)
	}
	return img, nil
}

// imageFault returns the failure of an image that could not be read: of the image, the network or the machine.
func imageFault(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return Fault(trivet.FaultNetwork, err)
	case errors.Is(err, trivet.ErrInvalid), errors.Is(err, trivet.ErrTooLarge):
		return &Failure{Fault: trivet.FaultImage, Final: true, Err: err}
	case errors.Is(err, unix.ENOSPC):
		return failf(trivet.FaultConfiguration, "%w (the image is unpacked in the installer's memory)", err)
	}
	return Fault(trivet.FaultNetwork, fmt.Errorf("image: %w", err))
}
