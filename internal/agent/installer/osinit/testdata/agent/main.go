// Command agent is the /init of osinit's tests: its agent performs the steps in the kernel argument test.do.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/agent/installer/osinit"
	"github.com/trivet-project/trivet/internal/agent/inventory"
)

func main() {
	if osinit.Called() {
		osinit.Main(run)
	}
	fmt.Fprintln(os.Stderr, "to be started as /init")
	os.Exit(2)
}

func run(ctx context.Context, env osinit.Env) (osinit.After, error) {
	fmt.Printf("AGENT boot=%s if=%s mac=%s addr=%s gw=%s dns=%v domain=%s restarts=%d url=%v\n", env.BootID,
		env.Interface,
		env.MAC, env.Lease.Address, env.Lease.Gateway, env.Lease.DNS, env.Lease.Domain, env.Restarts,
		env.Cmdline.List("trivet.url"))
	if env.LastOutput != "" {
		lines := strings.Split(env.LastOutput, "\n")
		fmt.Printf("LASTOUTPUT %q %q\n", lines[0], lines[len(lines)-1])
	}
	for _, step := range env.Cmdline.List("test.do") {
		if err := steps[step](); err != nil {
			return 0, fmt.Errorf("%s: %w", step, err)
		}
		fmt.Printf("DONE %s\n", step)
	}
	switch env.Cmdline["test.after"] {
	case "off":
		return osinit.PowerOff, nil
	case "kexec":
		return osinit.Kexec, nil
	case "wait":
		<-ctx.Done()
	}
	return osinit.Reboot, nil
}

var steps = map[string]func() error{
	"panic": func() error { go func() { panic("a bug in the agent") }(); time.Sleep(time.Minute); return nil },
	"fail":  func() error { return errors.New("a failure of the agent") },
	"exec":  func() error { return sh("/sbin/mkfs.ext4", "-V") },
	"mkfs":  mkfs,
	"pivot": pivot,
	"ls":    func() error { return list("/dev", "/dev/disk/by-id", "/sys/class/net", "/sys/firmware/efi/efivars") },
	"smart": health,
}

// health prints what the disks report of themselves, in the order of their buses.
func health() error {
	disks := inventory.Disks(os.DirFS("/"))
	inventory.ReadHealth(context.Background(), disks, slog.New(slog.NewTextHandler(os.Stdout, nil)))
	slices.SortFunc(disks, func(x, y trivet.Disk) int { return strings.Compare(x.Bus, y.Bus) })
	for _, d := range disks {
		text, err := json.Marshal(d.Health)
		if err != nil {
			return err
		}
		fmt.Printf("HEALTH %s %s\n", d.Bus, text)
	}
	return nil
}

func sh(args ...string) error {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// mkfs creates, mounts and fills each file system that has a program, on the first disk.
func mkfs() error {
	for _, fs := range []string{"ext4", "vfat", "xfs"} {
		args := []string{"/sbin/mkfs." + fs, "/dev/vda"}
		if fs == "xfs" {
			args = []string{"/sbin/mkfs.xfs", "-q", "-f", "/dev/vda"}
		}
		if err := sh(args...); err != nil {
			return fmt.Errorf("mkfs.%s: %w", fs, err)
		}
		if err := syscall.Mount("/dev/vda", "/mnt", fs, 0, ""); err != nil { // the kernel requests its driver
			return fmt.Errorf("mount %s: %w", fs, err)
		}
		if err := os.WriteFile("/mnt/file", []byte(fs), 0o644); err != nil {
			return err
		}
		if fs == "xfs" {
			return nil // left mounted for the end of the boot to unmount
		}
		if err := syscall.Unmount("/mnt", 0); err != nil {
			return err
		}
	}
	return nil
}

// pivot does what a container does to its root.
func pivot() error {
	if err := os.MkdirAll("/run/box/old", 0o755); err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return syscall.Unshare(syscall.CLONE_NEWNS) },
		func() error { return syscall.Mount("tmpfs", "/run/box", "tmpfs", 0, "") },
		func() error { return os.MkdirAll("/run/box/old", 0o755) },
		func() error { return syscall.PivotRoot("/run/box", "/run/box/old") },
		func() error { return list("/") },
		func() error { return syscall.PivotRoot("/old", "/old/run/box") },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func list(dirs ...string) error {
	for _, dir := range dirs {
		var names []string
		entries, err := os.ReadDir(dir)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		fmt.Printf("LIST %s: %s %v\n", dir, strings.Join(names, " "), err)
	}
	return nil
}
