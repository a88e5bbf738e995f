package action

import (
	"context"
	"fmt"
	"runtime"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/actionspec"
	"github.com/trivet-project/trivet/internal/agent/container/sandbox"
)

// grubScript installs GRUB by the installed system's own programs, as Debian and Fedora name them. For UEFI it goes to
// the path that firmware boots from by default: entries in the firmware's memory are lost too easily, and netboot
// precedes them anyway.
const grubScript = `
install=$(command -v grub-install || command -v grub2-install) || \
	{ echo "grub-install is not installed there" >&2; exit 3; }
config=$(command -v grub-mkconfig || command -v grub2-mkconfig) || \
	{ echo "grub-mkconfig is not installed there" >&2; exit 3; }
case "$FIRMWARE" in
uefi) "$install" --target="$TARGET" --efi-directory=/boot/efi --removable --no-nvram ;;
bios) "$install" --target=i386-pc "$DISK" ;;
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
		if firmware == "uefi" {
			if err := root.mountESP(ctx); err != nil {
				return err
			}
		}
		env := map[string]string{"FIRMWARE": firmware, "DISK": root.Disk, "TARGET": efiTarget()}
		box := sandbox.Spec{Args: []string{"/bin/sh", "-ec", grubScript}, Env: environment(at, nil, env)}
		err := e.run(ctx, at, trivet.FaultConfiguration, inside(root, box))
		if err == nil {
			at.Note(fmt.Sprintf("grub for %s on %s", firmware, root.Disk))
		}
		return err
	})
}

func efiTarget() string {
	if runtime.GOARCH == "arm64" {
		return "arm64-efi"
	}
	return "x86_64-efi"
}
