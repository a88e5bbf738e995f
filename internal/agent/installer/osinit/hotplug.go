package osinit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// quiet is how long the kernel must find no new device, twice, before the initial devices are complete.
const quiet = 250 * time.Millisecond

// hotplug loads the drivers of devices: of the existing ones and of each that the kernel announces, since one driver
// often finds the next device.
type hotplug struct {
	loader  *loader
	printf  func(format string, args ...any)
	settled chan struct{} // closed once the initial devices have their drivers
}

// run ends with the context, or when the kernel's events are not available.
func (h *hotplug) run(ctx context.Context) error {
	conn, err := listenUevents()
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	var g errgroup.Group
	defer func() { _ = g.Wait() }()
	g.SetLimit(8) // some drivers probe for many seconds
	h.coldplug(&g)
	return h.follow(ctx, conn, &g)
}

// listenUevents opens a socket for the kernel's device events, with a buffer for those of a large machine.
func listenUevents() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
		unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, fmt.Errorf("listen for devices: %w", err)
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20)
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("listen for devices: %w", err)
	}
	return os.NewFile(uintptr(fd), "uevents"), nil
}

// coldplug loads the drivers of all existing devices.
func (h *hotplug) coldplug(g *errgroup.Group) {
	seen := map[string]bool{}
	_ = filepath.WalkDir("/sys/devices", func(file string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "modalias" {
			if data, err := os.ReadFile(file); err == nil && !seen[string(data)] {
				seen[string(data)] = true
				h.request(g, strings.TrimSpace(string(data)))
			}
		}
		return nil // devices may vanish meanwhile
	})
}

func (h *hotplug) request(g *errgroup.Group, name string) {
	if name == "" || len(h.loader.index.Match(name)) == 0 {
		return
	}
	g.Go(func() error {
		if err := h.loader.request(name); err != nil && !errors.Is(err, unix.ENODEV) {
			h.printf("driver for %s: %v", name, err)
		}
		return nil
	})
}

// follow reads events. At the start it also detects when they end.
func (h *hotplug) follow(ctx context.Context, conn *os.File, g *errgroup.Group) error {
	buf := make([]byte, 64<<10)
	busy := true // a device appeared since the last check
	_ = conn.SetReadDeadline(time.Now().Add(quiet))
	for {
		n, err := conn.Read(buf)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			busy = true
			if e, ok := parseUevent(buf[:n]); ok && e.action == "add" {
				h.request(g, e.vars["MODALIAS"])
			}
		case errors.Is(err, unix.ENOBUFS): // events were lost
			h.coldplug(g)
		case errors.Is(err, os.ErrDeadlineExceeded) && busy:
			_ = g.Wait() // its functions return nil
			busy = false
			_ = conn.SetReadDeadline(time.Now().Add(quiet))
		case errors.Is(err, os.ErrDeadlineExceeded):
			_ = conn.SetReadDeadline(time.Time{})
			close(h.settled)
		default:
			return fmt.Errorf("listen for devices: %w", err)
		}
	}
}
