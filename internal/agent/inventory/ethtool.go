package inventory

import (
	"strings"

	"golang.org/x/sys/unix"
)

// nicFirmware returns the version of a port's firmware, as its driver reports it; empty where it reports none.
func nicFirmware(name string) string {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	info, err := unix.IoctlGetEthtoolDrvinfo(fd, name)
	if err != nil {
		return ""
	}
	version := strings.TrimSpace(unix.ByteSliceToString(info.Fw_version[:]))
	if version == "N/A" {
		return ""
	}
	return clip(version)
}
