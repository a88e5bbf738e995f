package oci

import (
	"fmt"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/agent/container/rootfs"
)

// Process is the process that an image specifies.
type Process struct {
	Args []string
	Env  []string
	Dir  string
	UID  int
	GID  int
}

// ProcessOf reads it from the image's configuration; command and args replace its entry point and arguments as they do
// elsewhere: a new command drops the image's arguments. Names of users are those of the unpacked image.
func ProcessOf(img v1.Image, dir string, command, args []string) (Process, error) {
	file, err := img.ConfigFile()
	if err != nil {
		return Process{}, fmt.Errorf("configuration of the image: %w", err)
	}
	c := file.Config
	p := Process{Env: c.Env, Dir: c.WorkingDir}
	switch {
	case len(command) > 0:
		p.Args = append(append(p.Args, command...), args...)
	case len(args) > 0:
		p.Args = append(append(p.Args, c.Entrypoint...), args...)
	default:
		p.Args = append(append(p.Args, c.Entrypoint...), c.Cmd...)
	}
	if len(p.Args) == 0 {
		return Process{}, fmt.Errorf("%w: neither the image nor the action has a command", trivet.ErrInvalid)
	}
	if c.User == "" {
		return p, nil
	}
	tree, err := rootfs.Open(dir)
	if err != nil {
		return Process{}, err
	}
	defer tree.Close()
	user, group, hasGroup := strings.Cut(c.User, ":")
	if p.UID, p.GID, err = tree.User(user); err == nil && hasGroup {
		p.GID, err = tree.Group(group)
	}
	if err != nil {
		return Process{}, fmt.Errorf("%w: user of the image: %w", trivet.ErrInvalid, err)
	}
	return p, nil
}
