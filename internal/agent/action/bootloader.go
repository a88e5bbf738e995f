package action

import (
	"context"
	"fmt"
	"runtime"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/actionspec"
	"github.com/trivet-project/trivet/internal/agent/action/block"
	"github.com/trivet-project/trivet/internal/agent/container/sandbox"
)

// grubScript installs GRUB by the installed system's own programs, as Debian and Fedora name them. For UEFI it goes to
// the path that firmware boots from by default: entries in the firmware's memory are lost too easily, and netboot
// precedes them anyway. DISK and ESP are all that it is installed on, as of a mirror.
const grubScript = `
install=$(command -v grub-install || command -v grub2-install) || \
	{ echo "grub-install is not installed there" >&2; exit 3; }
config=$(command -v grub-mkconfig || command -v grub2-mkconfig) || \
	{ echo "grub-mkconfig is not installed there" >&2; exit 3; }
case "$FIRMWARE" in
uefi) for dir in $ESP; do "$install" --target="$TARGET" --efi-directory="$dir" --removable --no-nvram; done ;;
bios) for disk in $DISK; do "$install" --target=i386-pc "$disk"; done ;;
esac
dir=/boot/grub; [ -d /boot/grub2 ] && dir=/boot/grub2
"$config" -o "$dir/grub.cfg"
`

func (e *Env) bootloader(ctx context.Context, at *Attempt, s *actionspec.Bootloader) error {
	if s.Kind == "none" {
		at.Note("the image brings its own")
		return nil
	}
	firmware := s.Firmware
	if firmware == "" {
		firmware = e.Firmware
	}
	return e.inRoot(ctx, at, s.Root, func(root *Root) error {
		var others []volume // with an EFI system partition
		if firmware == "uefi" {
			var err error
			if others, err = root.mountESP(ctx); err != nil {
				return err
			}
		}
		box, err := grub(at, firmware, root, others)
		if err != nil {
			return err
		}
		err = e.run(ctx, at, trivet.FaultConfiguration, box)
		if err == nil {
			at.Note(fmt.Sprintf("grub for %s on %s", firmware, strings.Join(root.Disks, ", ")))
		}
		return err
	})
}

// grub returns how GRUB is installed on the root's disks. EFI system partitions other than that at [espDir] are mounted
// for the time of that, in a directory of memory.
func grub(at *Attempt, firmware string, root *Root, others []volume) (sandbox.Spec, error) {
	dirs := []string{espDir}
	var mounts []sandbox.Mount
	for i, v := range others {
		node, err := block.Node(v.disk, v.number)
		if err != nil {
			return sandbox.Spec{}, err
		}
		dirs = append(dirs, fmt.Sprintf("/run/trivet-efi-%d", i+2))
		mounts = append(mounts, sandbox.Mount{Source: node, Target: dirs[i+1], Type: "vfat"})
	}
	env := map[string]string{"FIRMWARE": firmware, "DISK": strings.Join(root.Disks, " "), "TARGET": efiTarget(),
		"ESP": strings.Join(dirs, " ")}
	box := inside(root, sandbox.Spec{Args: []string{"/bin/sh", "-ec", grubScript}, Env: environment(at, nil, env)})
	box.Mounts = append(box.Mounts, mounts...)
	return box, nil
}

func efiTarget() string {
	if runtime.GOARCH == "arm64" {
		return "arm64-efi"
	}
	return "x86_64-efi"
}
