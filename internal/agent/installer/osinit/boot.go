package osinit

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	errorPause   = 30 * time.Second // between an error on the console and the reboot, so that a person can read it
	restartPause = 5 * time.Second  // before a failed agent is started again
	maxRestarts  = 3                // in one boot; after them the machine is rebooted
	settleWait   = 20 * time.Second // for all devices to have their drivers
)

// boot is process 1. It always ends in reboot, power off or kexec, with the reason on the console: if process 1 exits,
// the kernel panics.
func boot() {
	var c *console
	after := Reboot
	func() {
		defer func() {
			if r := recover(); r != nil {
				fmt.Fprintln(os.Stderr, "trivet: crashed:", r)
				time.Sleep(errorPause)
			}
		}()
		err := makeRoot()
		mountErr := mountAll()
		c = newConsole()
		for _, e := range []error{err, mountErr} {
			if e != nil {
				c.printf("%v", e) // continue without it
			}
		}
		after, err = c.bootAgent()
		if err != nil {
			c.printf("%v; rebooting in %s", err, errorPause)
			time.Sleep(errorPause)
			after = Reboot
		}
	}()
	end(after, c)
}

// bootAgent runs everything between mounting and unmounting.
func (c *console) bootAgent() (After, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return Reboot, err
	}
	env := Env{Cmdline: ParseCmdline(string(line)), BootID: bootID()}
	settled, err := c.startHotplug(ctx)
	if err != nil {
		return Reboot, err
	}
	port, err := connect(ctx, env.Cmdline.BootMAC(), c.printf)
	if err != nil {
		return Reboot, err
	}
	attrs := port.link.Attrs()
	env.Interface, env.MAC, env.Lease = attrs.Name, attrs.HardwareAddr.String(), port.Lease
	setHostname(env)
	c.printf("%s has %s", env.Interface, env.Lease.Address)
	go c.guarded("lease", func() { port.keep(ctx, c.printf) }) // ends with process 1, as do the others
	select {
	case <-settled:
	case <-time.After(settleWait):
		c.printf("devices still appear after %s; continuing", settleWait)
	}
	mountEFI()
	return c.supervise(env)
}

func (c *console) startHotplug(ctx context.Context) (settled <-chan struct{}, err error) {
	l, err := newLoader()
	if err != nil {
		return nil, fmt.Errorf("find drivers: %w", err)
	}
	h := &hotplug{loader: l, printf: c.printf, settled: make(chan struct{})}
	go c.guarded("devices", func() {
		if err := h.run(ctx); err != nil {
			c.printf("%v", err)
		}
	})
	return h.settled, nil
}

// guarded runs f and recovers its panic, which would end process 1 and thereby the machine.
func (c *console) guarded(what string, do func()) {
	defer func() {
		if r := recover(); r != nil {
			c.printf("%s: crashed: %v", what, r)
		}
	}()
	do()
}

func bootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
}

// setHostname sets the host name for logs: the machine's name, or else its MAC.
func setHostname(env Env) {
	name := env.Cmdline["trivet.machine"]
	if name == "" {
		name = "trivet-" + strings.ReplaceAll(env.MAC, ":", "")
	}
	_ = unix.Sethostname([]byte(name[:min(len(name), 64)]))
}

// end kills every process, unmounts every file system, flushes everything and ends the machine. It does not return.
func end(after After, c *console) {
	if c != nil {
		c.printf("%s", after)
	}
	_ = unix.Kill(-1, unix.SIGTERM)
	time.Sleep(200 * time.Millisecond)
	_ = unix.Kill(-1, unix.SIGKILL)
	unix.Sync()
	if err := unmountAll(); err != nil && c != nil {
		c.printf("%v", err)
	}
	unix.Sync()
	how := map[After]int{
		Reboot: unix.LINUX_REBOOT_CMD_RESTART, PowerOff: unix.LINUX_REBOOT_CMD_POWER_OFF,
		Kexec: unix.LINUX_REBOOT_CMD_KEXEC,
	}
	err := unix.Reboot(how[after])
	if c != nil {
		c.printf("%s: %v", after, err) // no kernel was loaded for kexec
	}
	for {
		_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
		time.Sleep(errorPause)
	}
}
