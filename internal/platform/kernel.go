package platform

import (
	"bytes"
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"github.com/trivet-project/trivet"
)

// kernel is a kernel in an unpacked package.
type kernel struct {
	tree    tree
	version string
	image   string // path of the file on this host
	modules string // directory in the tree
}

// findKernel returns the only kernel of the packages.
func findKernel(trees []tree) (*kernel, error) {
	var found []*kernel
	for _, t := range trees {
		for _, image := range t.glob("boot/vmlinuz-*") {
			k := &kernel{tree: t, version: strings.TrimPrefix(image, "boot/vmlinuz-"),
				image: filepath.Join(string(t), image)}
			for _, dir := range []string{"lib/modules", "usr/lib/modules"} { // merged /usr: the latter
				if len(t.glob(path.Join(dir, k.version, "kernel"))) > 0 {
					k.modules = path.Join(dir, k.version)
				}
			}
			found = append(found, k)
		}
	}
	if len(found) != 1 || found[0].modules == "" {
		return nil, fmt.Errorf("%w: the packages contain %d kernels; want one, with its modules", trivet.ErrInvalid,
			len(found))
	}
	return found[0], nil
}

// hasZstd reports whether the kernel unpacks an initramfs that zstd has compressed. All unpack gzip.
func (k *kernel) hasZstd() bool {
	config, err := k.tree.read("boot/config-" + k.version)
	return err == nil && bytes.Contains(config, []byte("\nCONFIG_RD_ZSTD=y\n"))
}
