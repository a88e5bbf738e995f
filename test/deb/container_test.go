package deb_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trivet-project/trivet/internal/testhead"
)

// limit bounds what a container must do: dpkg writes much, and three systems share the computer with other tests.
const limit = 3 * time.Minute

// container is a clean Debian that systemd runs in, on the network of the test.
type container struct {
	*testing.T
	*testhead.Process
	address string
	upper   string // what differs from the clean root
	init    string // the ID of its first process
}

// boot starts a container of a clean root, with a network namespace, and with files below /srv.
func boot(t *testing.T, root, namespace, address, srv string) *container {
	t.Helper()
	dir := t.TempDir()
	c := &container{T: t, address: address, upper: filepath.Join(dir, "upper")}
	for _, name := range []string{"upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// The mount and all processes of the container end with the process that is started here.
	cmd := testhead.Command("", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-ec", `
		mount -t overlay -o "lowerdir=$0,upperdir=$1/upper,workdir=$1/work" overlay "$1/merged"
		exec systemd-nspawn --quiet --register=no --keep-unit --link-journal=no --console=read-only \
			--directory="$1/merged" --machine="$2" --network-namespace-path="/run/netns/$2" \
			--capability=CAP_NET_ADMIN --bind-ro="$3:/srv" --boot`, root, dir, namespace, srv)
	cmd.Env = append(os.Environ(), "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1")
	inCgroup(t, cmd, namespace)
	p, err := testhead.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	c.Process = p
	t.Cleanup(func() { c.end() })
	c.await("start", func() (err error) {
		if c.init, err = systemdBelow(strconv.Itoa(p.PID())); err != nil {
			return err
		}
		return exec.Command("nsenter", c.enter("systemctl", "is-active", "--quiet", "basic.target")...).Run()
	})
	return c
}

// inCgroup has a command start in a control group of its own, below which systemd manages those of its services.
func inCgroup(t *testing.T, cmd *exec.Cmd, name string) {
	t.Helper()
	base := "/sys/fs/cgroup"
	if _, err := os.Stat(base + "/cgroup.controllers"); err != nil {
		base += "/unified" // version 2 is beside version 1
	}
	dir := filepath.Join(base, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(f.Fd())
	t.Cleanup(func() {
		_ = f.Close()
		ctx, cancel := context.WithTimeout(context.Background(), testhead.Timeout)
		defer cancel()
		if err := testhead.Eventually(ctx, func() error { // its last processes may be ending
			_ = exec.CommandContext(ctx, "find", dir, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";").Run()
			if _, err := os.Stat(dir); err == nil {
				return fmt.Errorf("%s is in use", dir)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
}

// systemdBelow returns the ID of the systemd that a process runs, or one of its children does.
func systemdBelow(process string) (string, error) {
	for id := process; ; {
		children, err := os.ReadFile("/proc/" + id + "/task/" + id + "/children")
		if err != nil {
			return "", err
		}
		if id, _, _ = strings.Cut(string(children), " "); id == "" {
			return "", fmt.Errorf("%s does not run systemd", process)
		}
		if name, err := os.ReadFile("/proc/" + id + "/comm"); err == nil && string(name) == "systemd\n" {
			return id, nil
		}
	}
}

// end stops the container.
func (c *container) end() {
	if c.Failed() {
		out := c.Log.String() // of a system that has not started
		if c.init != "" {
			out, _ = c.run("journalctl", "--no-pager", "--unit", "trivet")
		}
		c.Logf("%s:\n%s", c.address, out)
	}
	c.Signal(syscall.SIGKILL)
	_ = c.Wait(testhead.Timeout)
}

// enter returns the arguments of nsenter that run a command in the container.
func (c *container) enter(command ...string) []string {
	return append([]string{"--target", c.init, "--all", "--", "env", "-i", "HOME=/root", "TERM=dumb",
		"DEBIAN_FRONTEND=noninteractive", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		command...)
}

// run runs a command in the container and returns its standard output.
func (c *container) run(command ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	out, err := exec.CommandContext(ctx, "nsenter", c.enter(command...)...).Output()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s%s", strings.Join(command, " "), err, out, stderr(err))
	}
	return strings.TrimSpace(string(out)), err
}

// must runs a command that must succeed.
func (c *container) must(command ...string) string {
	c.Helper()
	out, err := c.run(command...)
	if err != nil {
		c.Fatalf("%s: %v", c.address, err)
	}
	return out
}

// is expects what a command of the shell prints.
func (c *container) is(want, script string) {
	c.Helper()
	if got, _ := c.run("sh", "-c", script); got != want {
		c.Errorf("%s: %s: %q, want %q", c.address, script, got, want)
	}
}

func (c *container) await(what string, try func() error) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), limit)
	defer cancel()
	if err := testhead.Eventually(ctx, try); err != nil {
		c.Fatalf("%s: %s: %v", c.address, what, err)
	}
}

// stderr returns what a command that failed has written to its standard error.
func stderr(err error) []byte {
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.Stderr
	}
	return nil
}
