package actionspec

// descriptions are those of the actions ("wipe"), of their arguments ("wipe.mode"), of arguments that several actions
// share ("*.image") and of the fields of objects ("disk.serial").
var descriptions = map[string]string{
	"*.disk": "The disk: a path (`/dev/sda`, `/dev/disk/by-id/...`) or hints that match exactly one disk. " +
		"Default: the machine's disk (`Machine.spec.disk`).",
	"*.partition": "Number of the partition, from 1. Default: the disk is searched for the root file system.",
	"*.env":       "Environment variables.",
	"*.blame": "The type of failure that an exit status other than 0 is: `configuration` or `machine`. " +
		"Only a failure of the machine is retried on another machine.",

	"disk.path":       "A device: `/dev/nvme0n1`, `/dev/disk/by-id/...` or `/dev/disk/by-path/...`.",
	"disk.serial":     "The serial number.",
	"disk.wwn":        "The worldwide name, with or without its prefix `0x`, `naa.` or `eui.`.",
	"disk.hctl":       "The SCSI address, `0:0:1:0`.",
	"disk.model":      "A part of the model, in upper or lower case.",
	"disk.minSize":    "The smallest size that matches, `400GB` or `1TiB`.",
	"disk.maxSize":    "The largest size that matches.",
	"disk.rotational": "`true` for hard disks, `false` for flash.",

	"test-memory": "Tests the memory, and fails with the fault of the machine where it finds an error. A part of the " +
		"free memory is written and read with six patterns: the number of each word, random values, stripes, and the " +
		"inverse of each. The errors that the memory controllers have counted meanwhile (EDAC), and machine check " +
		"exceptions, are found, too.",
	"test-memory.percent": "How much of the free memory is tested, 1 to 90. At least 256 MiB stay free, of a " +
		"small machine half.",
	"test-memory.passes": "How often all patterns are written and read, at least; 1 to 1000.",
	"test-memory.time":   "Passes are repeated until this time has passed. It must fit into the action's timeout.",
	"test-memory.corrected": "How many errors the memory may correct (ECC) during the test (default: none); more are a fault. One " +
		"that is not corrected always is.",

	"test-disk": "Tests disks, all at the same time, each to its end. It fails with the fault of the machine where a " +
		"disk cannot be read, or reports by SMART that it fails. Read-only and removable disks and that of the agent's " +
		"journal are not among `all`.",
	"test-disk.disk": "As for other actions, or `all` for every writable disk.",
	"test-disk.mode": "`read` writes nothing. `rewrite` writes back what it has read twice alike, and reads it again: " +
		"what is on the disk stays. `write` writes random values and their inverse and reads them again: what is on the " +
		"disk is lost.",
	"test-disk.destructive": "`true` permits mode `write`. A disk in use is refused.",
	"test-disk.full": "Every byte of the disk instead of samples: hours for a large disk. Give the action a timeout " +
		"that is long enough.",
	"test-disk.samples": "How many samples of 64 KiB are read, at random places, without `full`; 1 to 100000.",
	"test-disk.minRate": "The least rate of reading the whole disk, in bytes per second, `150MB`. Default: none.",
	"test-disk.maxLatency": "The longest that 99 of 100 reads may take, `50ms`: of 64 KiB, with `full` of 4 MiB. " +
		"Default: none.",

	"test-network": "Tests the network ports, and fetches a blob from a head by the port that the machine has booted " +
		"from. It fails with the fault of the machine where a port counts damaged frames or loses its link meanwhile, or " +
		"runs at half duplex, and where what was fetched has another digest.",
	"test-network.transfer": "How much is fetched at least: the initramfs of the machine's platform, as often as that " +
		"needs. At most 64GiB. All machines share the heads.",
	"test-network.minRate": "The least rate of that, in bytes per second, `100MB`. Machines that are tested at the same " +
		"time share the network and the heads. Default: none.",
	"test-network.links": "How many ports must have a link at least; those on USB do not count. Default: none.",
	"test-network.minSpeed": "The least speed of each port with a link, in Mbit/s, `10000`; those on USB do not count. " +
		"Default: none.",
	"test-network.errors": "How many damaged frames and lost links all ports may count during the test. Default: none.",

	"wipe":      "Erases a disk.",
	"wipe.disk": "As for other actions, or `all` for every writable disk.",
	"wipe.mode": "`quick` erases the ends of the disk and of its partitions, which hold all " +
		"signatures of file systems, RAIDs and partition tables. `discard` makes the disk discard its content " +
		"first. `zero` writes every byte. `erase` erases all disks at the same time, each by the best method that it " +
		"does not refuse: NVMe sanitize or format, ATA secure erase, discard, overwrite.",

	"verify": "Fails unless a disk holds nothing: no partition table, no signature, both ends zero, and no data in " +
		"64 samples. Write it after a `wipe` with mode `erase`.",
	"verify.disk": "As for other actions, or `all` for every writable disk.",

	"partition": "Writes a GUID partition table. A disk that has the wanted table already is not changed.",
	"partition.partitions": "The partitions in their order. Everything on the disk is lost, " +
		"unless its table is the wanted one already.",
	"partitions.name": "At most 36 characters; Linux shows it as PARTLABEL.",
	"partitions.size": "`512MiB`, `20GiB`, or `rest` for the space that the others leave.",
	"partitions.type": "`efi`, `bios`, `root`, `linux`, `swap`, `home`, `xboot`, `lvm`, " +
		"`raid` or a GUID. Default: `linux`.",
	"partitions.uuid": "The partition's GUID. Default: derived from the run.",

	"raid": "Creates an array of level 1, a mirror of devices, by mdadm. It is `/dev/md/NAME` for the actions after it, " +
		"as `disk`, and in the installed system. What was on the devices is not overwritten: a device that holds " +
		"something is refused until it is wiped. An array that this run has created is used as it is.",
	"raid.name":  "Its name. At most 27 letters, digits, `_`, `-` and `.`.",
	"raid.level": "Only 1.",
	"raid.devices": "What it is made of, at least two: each a path, or an object with `disk` and `partition`. Of " +
		"devices of different sizes the smallest counts.",
	"raid.metadata": "Where each device has the array's superblock: `1.2`, near its start, or `1.0`, at its end, for " +
		"what firmware reads, such as an EFI system partition. In quotes.",
	"devices.disk":      "A path or disk hints, as of other actions; an array by its path. Default: the machine's disk.",
	"devices.partition": "Number of the partition, from 1. Default: the whole disk.",

	"lvm": "Creates a volume group of LVM and its logical volumes. They are `/dev/GROUP/VOLUME` for the actions after " +
		"it, as `disk`, and in the installed system. What was on the devices is not overwritten: a device that holds " +
		"something is refused until it is wiped. What this run has created is used as it is.",
	"lvm.group": "Name of the volume group. At most 32 letters, digits, `_`, `+`, `-` and `.`.",
	"lvm.devices": "What it is made of: each a path, such as that of an array, `/dev/md/NAME`, or an object with `disk` " +
		"and `partition`.",
	"lvm.volumes":  "The logical volumes.",
	"volumes.name": "As that of the group, and none that LVM uses itself.",
	"volumes.size": "`20GiB`, or `rest` for the space that the others leave. Rounded up to multiples of 4 MiB.",

	"format":           "Creates a file system.",
	"format.partition": "Number of the partition, from 1. Default: the whole disk.",
	"format.fs":        "`ext4`, `vfat`, `xfs` or `swap`.",
	"format.label":     "At most 16 bytes for ext4 and swap, 12 for xfs, 11 for vfat.",
	"format.options":   "Arguments that are added to those of mkfs; not for swap.",

	"image":           "Writes an image of format raw to a disk or partition.",
	"image.image":     "Name of an Image record of format raw.",
	"image.partition": "Number of the partition, from 1. Default: the whole disk.",
	"image.grow": "Extends the partition table to the end of the disk, and the last " +
		"partition and its file system (ext4) with it.",

	"archive":       "Unpacks an image of format tar into the installed system.",
	"archive.image": "Name of an Image record of format tar.",
	"archive.path":  "Directory in the installed system; created if it does not exist.",

	"file": "Writes a file into the installed system, atomically.",
	"file.path": "Path in the installed system. Missing directories are created; symbolic " +
		"links are resolved inside the installed system.",
	"file.content": "The content as text.",
	"file.base64":  "The content as base64, instead of content. Without either the file is empty.",
	"file.mode":    "Permissions, octal, in quotes.",
	"file.owner":   "`user:group`, by names of the installed system or by numbers.",

	"command": "Runs a program as root. Its output is the action's log. Its processes " +
		"are killed when the action ends.",
	"command.args":   "The program and its arguments. Either args or script is required.",
	"command.script": "A script for `/bin/sh -e`, instead of args.",
	"command.in": "`root` runs it in the installed system, with /dev, /proc, /sys and /run of " +
		"the installer; `installer` in the installer.",

	"seed": "Writes cloud-init's NoCloud seed into the installed system: host name, SSH " +
		"keys, user data and network of the run, and the URLs for its phone-home. The first boot then needs no head.",
	"seed.path": "Directory of the seed in the installed system.",

	"head": "Makes the installed system a head, for `trivet head promote`: writes its configuration, with the right " +
		"to join the cluster once from the address of the machine, and the program of the installer. The right is in no " +
		"record. The unit that runs the program, and its user, are those of the image or of other actions.",
	"head.path":   "The configuration of `trivet server`.",
	"head.config": "Settings for it, as YAML: `dhcp: [eno1]`. `join`, `token` and `advertise` are added.",
	"head.program": "Where the program is written: that of the installer, as the platform has it. Empty: it is part " +
		"of the image.",
	"head.mode":  "Permissions of the configuration, octal, in quotes. Others must not read it, as it has a token.",
	"head.owner": "`user:group` of the configuration, by names of the installed system or by numbers.",

	"bootloader":          "Makes the installed system bootable, by its own boot loader's programs.",
	"bootloader.kind":     "`grub` runs grub-install and grub-mkconfig of the installed system; `none` does nothing.",
	"bootloader.firmware": "`bios` or `uefi`. Default: the firmware that this machine booted with.",

	"container": "Runs an OCI image in its own namespaces, as root of the machine, until " +
		"its process ends. The image is unpacked in the installer's memory.",
	"container.image": "Name of an Image record of format oci. Either image or ref is required.",
	"container.ref": "An image in a registry, `registry.example:5000/tool@sha256:...`, instead of " +
		"image. The digest is required.",
	"container.plainHTTP": "Accesses the registry without TLS.",
	"container.ca":        "The registry's certificate authority, PEM.",
	"container.command":   "Replaces the image's entry point.",
	"container.args":      "Replaces the image's arguments.",
	"container.devices": "Mounts the machine's /dev. Without it there are only null, " +
		"zero, random and similar devices.",
	"container.mount": "Where the installed system's root file system is mounted, " +
		"`/target`. Default: it is not mounted.",
	"container.net": "`host` or `none`.",

	"kexec":         "Starts the installed system's kernel without the firmware, when all reports are acknowledged.",
	"kexec.kernel":  "Path in the installed system. Default: /vmlinuz or /boot/vmlinuz.",
	"kexec.initrd":  "Path in the installed system. Default: /initrd.img or /boot/initrd.img, if it exists.",
	"kexec.cmdline": "The kernel's command line. Default: `root=UUID=... ro` and the consoles of the installer.",

	"reboot":     "Reboots the machine, when all reports are acknowledged.",
	"poweroff":   "Powers the machine off, when all reports are acknowledged.",
	"noop":       "Does nothing.",
	"noop.sleep": "How long the action takes.",
}
