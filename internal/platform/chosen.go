package platform

import "debug/elf"

// Modules are the drivers of the installer OS, as glob patterns below /lib/modules/VERSION/kernel; a pattern that ends
// in a slash matches everything below. Their dependencies are included. A kernel need not have all of them: a driver
// may be built in, or not exist for its machines.
//
// Included are the drivers for network boot, storage, sensors and management of servers, and for what actions mount.
// Excluded are sound, graphics, radio, InfiniBand, multipath SANs (Fibre Channel), and network cards from before 2005.
var Modules = []string{
	// Network cards, with their PHYs.
	"drivers/net/ethernet/amazon/", "drivers/net/ethernet/amd/", "drivers/net/ethernet/aquantia/",
	"drivers/net/ethernet/atheros/", "drivers/net/ethernet/broadcom/", "drivers/net/ethernet/brocade/",
	"drivers/net/ethernet/cavium/", "drivers/net/ethernet/chelsio/cxgb4/", "drivers/net/ethernet/cisco/",
	"drivers/net/ethernet/emulex/", "drivers/net/ethernet/google/", "drivers/net/ethernet/hisilicon/",
	"drivers/net/ethernet/huawei/", "drivers/net/ethernet/intel/", "drivers/net/ethernet/marvell/",
	"drivers/net/ethernet/mellanox/mlx4/", "drivers/net/ethernet/mellanox/mlx5/", "drivers/net/ethernet/microsoft/",
	"drivers/net/ethernet/netronome/", "drivers/net/ethernet/nvidia/", "drivers/net/ethernet/qlogic/",
	"drivers/net/ethernet/realtek/", "drivers/net/ethernet/sfc/sfc.ko", "drivers/net/ethernet/stmicro/",
	"drivers/net/hyperv/", "drivers/net/mdio/", "drivers/net/phy/", "drivers/net/virtio_net.ko",
	"drivers/net/vmxnet3/", "drivers/net/xen-netfront.ko", "drivers/net/usb/cdc_ether.ko",
	"drivers/net/usb/ax88179_178a.ko", "drivers/net/usb/r8152.ko",
	// Virtual networks above them.
	"drivers/net/bonding/", "drivers/net/veth.ko", "net/8021q/", "net/bridge/bridge.ko",
	// Disks and their controllers.
	"drivers/ata/ahci.ko", "drivers/ata/ata_generic.ko", "drivers/ata/ata_piix.ko", "drivers/ata/sata_*.ko",
	"drivers/block/loop.ko", "drivers/block/virtio_blk.ko", "drivers/block/xen-blkfront.ko",
	"drivers/message/fusion/", "drivers/mmc/core/mmc_block.ko", "drivers/mmc/host/sdhci-*.ko", "drivers/nvme/host/",
	"drivers/pci/controller/", "drivers/scsi/aacraid/", "drivers/scsi/hpsa.ko", "drivers/scsi/hv_storvsc.ko",
	"drivers/scsi/isci/", "drivers/scsi/megaraid/", "drivers/scsi/mpi3mr/", "drivers/scsi/mpt3sas/",
	"drivers/scsi/mvsas/", "drivers/scsi/pm8001/", "drivers/scsi/sd_mod.ko", "drivers/scsi/sg.ko",
	"drivers/scsi/smartpqi/", "drivers/scsi/sr_mod.ko", "drivers/scsi/virtio_scsi.ko", "drivers/scsi/vmw_pvscsi.ko",
	"drivers/usb/host/", "drivers/usb/storage/",
	// Block devices and file systems above them.
	"drivers/md/dm-mod.ko", "drivers/md/dm-crypt.ko", "drivers/md/dm-mirror.ko", "drivers/md/dm-snapshot.ko",
	"drivers/md/dm-thin-pool.ko", "drivers/md/raid*.ko", "drivers/md/linear.ko",
	"fs/btrfs/", "fs/efivarfs/", "fs/ext4/", "fs/fat/", "fs/isofs/", "fs/nls/nls_ascii.ko", "fs/nls/nls_cp437.ko",
	"fs/nls/nls_iso8859-1.ko", "fs/nls/nls_utf8.ko", "fs/overlayfs/", "fs/squashfs/", "fs/xfs/",
	// The machine itself: its BMC, and the buses of virtual ones.
	"drivers/char/ipmi/ipmi_devintf.ko", "drivers/char/ipmi/ipmi_si.ko", "drivers/char/ipmi/ipmi_ssif.ko",
	"drivers/char/hw_random/", "drivers/char/virtio_console.ko", "drivers/hv/", "drivers/virtio/",
	// What memory controllers count (see the action test-memory).
	"drivers/edac/",
}

// Programs are the programs of the installer OS that built-in actions call, by package.
var Programs = []PackagePrograms{
	{"e2fsprogs", []string{"sbin/mke2fs", "sbin/e2fsck", "sbin/resize2fs", "sbin/tune2fs"}},
	{"dosfstools", []string{"sbin/mkfs.fat"}},
	{"xfsprogs", []string{"sbin/mkfs.xfs"}},
	{"mdadm", []string{"sbin/mdadm"}},
	{"lvm2", []string{"sbin/lvm"}},
	{"dmsetup", []string{"sbin/dmsetup"}},
}

// PackagePrograms are programs of a Debian package.
type PackagePrograms struct {
	Package string
	Paths   []string
}

// links are other names of programs, and of the agent: the kernel calls /sbin/modprobe to load drivers (see
// agent/installer/osinit).
var links = map[string]string{
	"sbin/mkfs.ext2": "mke2fs", "sbin/mkfs.ext3": "mke2fs", "sbin/mkfs.ext4": "mke2fs",
	"sbin/fsck.ext4": "e2fsck", "sbin/mkfs.vfat": "mkfs.fat", "sbin/modprobe": "../init",
	"bin/trivet": "../init", "usr/bin": "../bin", "usr/sbin": "../sbin",
}

// arch describes an architecture.
type arch struct {
	elf     elf.Machine
	triplet string // of Debian's library directories
}

var arches = map[string]arch{
	"amd64": {elf.EM_X86_64, "x86_64-linux-gnu"},
	"arm64": {elf.EM_AARCH64, "aarch64-linux-gnu"},
}

func programPackages() []string {
	var names []string
	for _, p := range Programs {
		names = append(names, p.Package)
	}
	return names
}
