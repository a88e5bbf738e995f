package platform

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/trivet-project/trivet"
)

// directories are empty directories for mounts and for programs.
var directories = []string{"dev", "etc", "mnt", "proc", "root", "run", "sys", "tmp", "var/lib", "var/log"}

// etc is the configuration that programs read.
var etc = map[string]string{
	"etc/passwd":        "root:x:0:0:root:/root:/bin/false\nnobody:x:65534:65534::/:/bin/false\n",
	"etc/group":         "root:x:0:\nnogroup:x:65534:\n",
	"etc/hosts":         "127.0.0.1 localhost\n::1 localhost\n",
	"etc/nsswitch.conf": "hosts: files dns\n",
	"etc/lvm/lvm.conf":  lvmConf,
	"etc/os-release":    "ID=trivet\nNAME=Trivet\nPRETTY_NAME=\"Trivet installer OS\"\n",
}

// lvmConf is for an OS without udev and without LVM's daemons, whose /etc is in memory.
const lvmConf = `activation {
	monitoring = 0
	udev_rules = 0
	udev_sync = 0
}
backup {
	archive = 0
	backup = 0
}
devices {
	external_device_info_source = "none"
	hints = "none"
	obtain_device_list_from_udev = 0
	use_devicesfile = 0
}
global {
	event_activation = 0
	use_lvmpolld = 0
}
`

// addSkeleton adds directories, the two device nodes that are needed before /dev is mounted, /etc and CA certificates.
func (b *builder) addSkeleton() error {
	for _, dir := range directories {
		b.files.directory(dir)
	}
	b.files.device("dev/console", 0o600, 5, 1)
	b.files.device("dev/null", 0o666, 1, 3)
	for name, text := range etc {
		b.files.add(name, 0o644, []byte(text))
	}
	return b.addCertificates()
}

// addCertificates adds Mozilla's CAs in one file, as update-ca-certificates does.
func (b *builder) addCertificates() error {
	var all bytes.Buffer
	for _, t := range b.trees {
		for _, name := range t.glob("usr/share/ca-certificates/mozilla/*.crt") { // sorted
			pem, err := t.read(name)
			if err != nil {
				return err
			}
			all.Write(bytes.TrimSpace(pem))
			all.WriteByte('\n')
		}
	}
	if all.Len() == 0 {
		return fmt.Errorf("%w: no package has CA certificates; add ca-certificates", trivet.ErrNotFound)
	}
	b.files.add("etc/ssl/certs/ca-certificates.crt", 0o644, all.Bytes())
	return nil
}

// addFirmware adds /lib/firmware of the packages, if the options name packages with firmware.
func (b *builder) addFirmware() error {
	if len(b.Firmware) == 0 {
		return nil
	}
	for _, t := range b.trees {
		for _, dir := range []string{"lib/firmware", "usr/lib/firmware"} {
			if err := b.addDirectory(filepath.Join(string(t), dir), "lib/firmware"); err != nil {
				return err
			}
		}
	}
	return nil
}

// addDirectory adds all files below a directory that may not exist. It follows links inside it, which firmware has many
// of.
func (b *builder) addDirectory(dir, to string) error {
	if _, err := os.Stat(dir); err != nil {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return filepath.WalkDir(dir, func(file string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		data, err := root.ReadFile(rel)
		if err == nil {
			b.files.add(path.Join(to, filepath.ToSlash(rel)), 0o644, data)
		}
		return nil // a dangling link, or a link to a directory
	})
}

// addExtra adds the caller's files. A file that is executable on this host is executable there.
func (b *builder) addExtra() error {
	for name, file := range b.Extra {
		clean := strings.TrimPrefix(path.Clean("/"+name), "/")
		if clean == "" || clean == "init" {
			return fmt.Errorf("%w: %q cannot be the path of an extra file", trivet.ErrInvalid, name)
		}
		if err := b.addHostFile(clean, file); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) addHostFile(name, file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	mode := uint64(0o644)
	if info.Mode()&0o111 != 0 {
		mode = 0o755
	}
	b.files.add(name, mode, data)
	return nil
}
