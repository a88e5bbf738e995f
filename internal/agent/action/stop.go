package action

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/trivet-project/trivet"
)

func (e *Env) stack() stack { return stack{e.Sys} }

// stopAbove stops what the kernel has built on a device and on its partitions: arrays, volumes of LVM, and whatever
// else the device mapper has there. The device would be in use.
func (e *Env) stopAbove(ctx context.Context, at *Attempt, node string) error {
	name := e.stack().nameOf(node)
	if name == "" {
		return nil
	}
	if err := e.stopHolders(ctx, at, name); err != nil {
		return fmt.Errorf("stop what is on %s: %w", node, err)
	}
	return nil
}

func (e *Env) stopHolders(ctx context.Context, at *Attempt, name string) error {
	st := e.stack()
	for _, d := range append(st.parts(name), name) {
		for _, h := range st.holders(d) { // one that several parts have is gone at the second
			if err := e.stopHolders(ctx, at, h); err != nil {
				return err
			}
			if err := e.stopOne(ctx, at, h); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *Env) stopOne(ctx context.Context, at *Attempt, name string) error {
	st := e.stack()
	switch volume := st.text(name, "dm/name"); {
	case volume != "":
		err := e.tool(ctx, at, trivet.FaultMachine, "dmsetup", "remove", "--noudevsync", "--noudevrules", "--retry", volume)
		group, _, _ := strings.Cut(strings.ReplaceAll(volume, "--", "\x00"), "-") // hyphens of names are doubled
		removeDangling("/dev/" + strings.ReplaceAll(group, "\x00", "-"))
		return err
	case st.has(name, "md"):
		err := e.tool(ctx, at, trivet.FaultMachine, "mdadm", "--stop", nodeOf(name))
		removeDangling("/dev/md")
		return err
	}
	return nil
}

// removeDangling removes the links of a directory that lead nowhere, and the directory if nothing is left: without udev
// the names of devices that are gone stay, and cannot be given again.
func removeDangling(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			_ = os.Remove(path)
		}
	}
	_ = os.Remove(dir)
}
