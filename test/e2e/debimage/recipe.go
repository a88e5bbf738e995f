package debimage

import (
	"os"
	"path/filepath"
	"strings"
)

// packages are what an installed server has at least, with the tools that cloud-init calls.
var packages = []string{
	"systemd-sysv", "udev", "dbus", "cloud-init", "linux-image-cloud-amd64", "initramfs-tools", "openssh-server",
	"iproute2", "e2fsprogs", "netbase", "ca-certificates", "cloud-guest-utils", "fdisk", "sudo",
	"ipxe", // of a machine that becomes a head
}

// An initramfs with the drivers of the lab's machines only: Debian's default is five times as large.
const initramfsHook = `mkdir -p "$1/etc/initramfs-tools/conf.d"
printf 'MODULES=list\nCOMPRESS=gzip\n' > "$1/etc/initramfs-tools/conf.d/trivet"
printf 'virtio_pci\nvirtio_blk\nvirtio_scsi\nsd_mod\nnvme\next4\n' > "$1/etc/initramfs-tools/modules"`

func mmdebstrapArgs(root string) []string {
	return []string{
		"--mode=root", "--variant=minbase", "--include=" + strings.Join(packages, ","),
		"--aptopt=APT::Install-Recommends false", "--aptopt=Acquire::Retries 5",
		"--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/doc/*",
		"--dpkgopt=path-exclude=/usr/share/locale/*",
		"--essential-hook=" + initramfsHook,
		// The network is cloud-init's and networkd's; nothing in the test's network can be fetched, so nothing must
		// try.
		`--customize-hook=systemctl --root="$1" enable systemd-networkd.service serial-getty@ttyS0.service`,
		`--customize-hook=systemctl --root="$1" mask apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer` +
			` fstrim.timer systemd-timesyncd.service getty@tty1.service`,
		"bookworm", root,
	}
}

// configFile is a file that is added to the system; an empty text empties it.
type configFile struct{ path, text string }

// config makes the system anonymous until cloud-init names it. cloud-init reads only the seed on the disk.
var config = []configFile{
	{"etc/hostname", "unnamed\n"},
	{"etc/machine-id", ""},
	{"etc/fstab", "LABEL=root / ext4 errors=remount-ro 0 1\n"},
	{"etc/cloud/cloud.cfg.d/90_datasource.cfg", "datasource_list: [NoCloud, None]\n"},
	{"etc/cloud/cloud.cfg.d/91_test.cfg",
		"ssh_genkeytypes: [ed25519]\napt: {preserve_sources_list: true}\nlocale: false\n"},
	{"boot/grub/grub.cfg", `set timeout=0
linux /vmlinuz root=LABEL=root ro console=tty0 console=ttyS0,115200 loglevel=5
initrd /initrd.img
boot
`},
}

func writeConfig(root string) error {
	for _, f := range config {
		path := filepath.Join(root, f.path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(f.text), 0o644); err != nil {
			return err
		}
	}
	// Keys and names that mmdebstrap copied from the host or that each machine generates.
	for _, pattern := range []string{"etc/ssh/ssh_host_*", "etc/resolv.conf", "var/lib/dbus/machine-id"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return err
		}
		for _, path := range found {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	return nil
}
