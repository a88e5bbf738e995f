package debimage

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// The disk: 1 MiB for BIOS GRUB, the EFI system partition, and the system last, so that it can grow with the disk.
const (
	layoutVersion = 1
	diskMB        = 1536
	biosMB        = 1  // starts here
	espMB         = 2  // starts here
	rootMB        = 42 // starts here
	rootSizeMB    = diskMB - rootMB - 1
	rootUUID      = "5ea1ab1e-0000-4000-8000-000000000001" // the same for all: cloud-init does not care
)

const sector = 512

var partitions = []string{
	"--clear",
	"--new=1:1M:+1M", "--typecode=1:ef02", "--change-name=1:bios",
	"--new=2:2M:+40M", "--typecode=2:ef00", "--change-name=2:esp",
	"--new=3:42M:0", "--typecode=3:8304", "--change-name=3:root",
}

func makeTable(ctx context.Context, disk string) error {
	f, err := os.Create(disk)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(diskMB<<20), f.Close()); err != nil {
		return err
	}
	return run(ctx, "sgdisk", append(append([]string{"--set-alignment=2048"}, partitions...), disk)...)
}

// makeRoot creates the file system in its place on the disk and fills it from the directory.
func makeRoot(ctx context.Context, disk, root string) error {
	return run(ctx, "mkfs.ext4", "-q", "-F", "-L", "root", "-U", rootUUID, "-d", root, "-m", "1",
		"-E", fmt.Sprintf("offset=%d,root_owner=0:0", rootMB<<20), disk, strconv.Itoa(rootSizeMB)+"M")
}

// biosModules and efiModules are all that GRUB needs to read grub.cfg and what that names: none are loaded from the
// disk.
var (
	biosModules = []string{"biosdisk", "part_gpt", "ext2", "normal", "linux", "test", "echo"}
	efiModules  = []string{"part_gpt", "ext2", "normal", "linux", "test", "echo"}
)

// grubPrefix is grub.cfg's directory: on the third partition of whatever disk GRUB was started from.
const grubPrefix = "(,gpt3)/boot/grub"

func grubImage(ctx context.Context, format, out string, modules []string) error {
	args := []string{"-O", format, "-o", out, "-p", grubPrefix}
	return run(ctx, "grub-mkimage", append(args, modules...)...)
}

// makeESP puts GRUB where UEFI looks on a disk that it knows nothing of (UEFI 2.10, 3.5.1.1).
func makeESP(ctx context.Context, disk, dir string) error {
	grub := filepath.Join(dir, "BOOTX64.EFI")
	if err := grubImage(ctx, "x86_64-efi", grub, efiModules); err != nil {
		return err
	}
	defer os.Remove(grub)
	esp := filepath.Join(dir, "esp.img")
	defer os.Remove(esp)
	for _, cmd := range [][]string{
		{"mkfs.fat", "-F", "32", "-n", "ESP", "-i", "5ea1ab1e", "-C", esp, strconv.Itoa((rootMB - espMB) << 10)},
		{"mmd", "-i", esp, "::/EFI", "::/EFI/BOOT"},
		{"mcopy", "-i", esp, grub, "::/EFI/BOOT/BOOTX64.EFI"},
	} {
		if err := run(ctx, cmd[0], cmd[1:]...); err != nil {
			return err
		}
	}
	data, err := os.ReadFile(esp)
	if err != nil {
		return err
	}
	return writeAt(disk, data, espMB<<20)
}

func writeAt(disk string, data []byte, offset int64) error {
	f, err := os.OpenFile(disk, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, offset)
	return errors.Join(err, f.Close())
}

// makeBIOSBoot does what grub-bios-setup does, on a file: GRUB's first sector goes to the disk's, around the partition
// table, and holds the location of the rest; the rest goes to its partition, and holds the location of its own rest.
func makeBIOSBoot(ctx context.Context, disk, dir string) error {
	const (
		start       = biosMB << 20 / sector
		kernelAt    = 0x5c        // in boot.img: sector of core.img
		checkAt     = 0x66        // in boot.img: a jump for floppies that is to be removed
		codeEnd     = 0x1b8       // of boot.img: disk signature and partition table follow
		blocklistAt = sector - 12 // in core.img: first sector, and number of sectors, of its rest
	)
	coreFile := filepath.Join(dir, "core.img")
	if err := grubImage(ctx, "i386-pc", coreFile, biosModules); err != nil {
		return err
	}
	defer os.Remove(coreFile)
	boot, err := os.ReadFile("/usr/lib/grub/i386-pc/boot.img")
	if err != nil {
		return fmt.Errorf("%w; try %s", err, Packages)
	}
	core, err := os.ReadFile(coreFile)
	if err != nil {
		return err
	}
	if len(boot) != sector || len(core) > (espMB-biosMB)<<20 {
		return fmt.Errorf("GRUB's boot.img has %d bytes, core.img %d", len(boot), len(core))
	}
	binary.LittleEndian.PutUint64(boot[kernelAt:], start)
	boot[checkAt], boot[checkAt+1] = 0x90, 0x90
	binary.LittleEndian.PutUint64(core[blocklistAt:], start+1)
	binary.LittleEndian.PutUint16(core[blocklistAt+8:], uint16((len(core)+sector-1)/sector-1))
	return errors.Join(writeAt(disk, boot[:codeEnd], 0), writeAt(disk, core, start*sector))
}
