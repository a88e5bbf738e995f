package osinit

import "strings"

// uevent is the kernel's event of a device: its action (add, change, ...) and the variables that udev receives.
type uevent struct {
	action string
	vars   map[string]string
}

// parseUevent reads a kernel's message: "add@/devices/...", then KEY=value, all ended by NUL. ok is false for others,
// such as udev's own.
func parseUevent(msg []byte) (e uevent, ok bool) {
	parts := strings.Split(string(msg), "\x00")
	action, _, ok := strings.Cut(parts[0], "@")
	if !ok || action == "" {
		return uevent{}, false
	}
	e = uevent{action: action, vars: map[string]string{}}
	for _, part := range parts[1:] {
		if key, value, found := strings.Cut(part, "="); found && key != "" {
			e.vars[key] = value
		}
	}
	return e, true
}
