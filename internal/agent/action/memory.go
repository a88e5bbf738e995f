package action

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// availableMemory returns how much memory programs can still use, in bytes.
func availableMemory() int64 {
	text, err := os.ReadFile("/proc/meminfo")
	if err == nil {
		for line := range strings.Lines(string(text)) {
			value, ok := strings.CutPrefix(line, "MemAvailable:")
			if kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64); ok && err == nil {
				return kb << 10
			}
		}
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return int64(info.Freeram) * int64(info.Unit)
}
