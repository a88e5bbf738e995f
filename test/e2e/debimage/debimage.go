// Package debimage builds the disk image of a small Debian 12 with cloud-init, as tests install it: GPT, booting from
// its own disk on BIOS and UEFI, serial console on ttyS0. It is built from Debian's packages, without mounts or loop
// devices, and kept in a cache under the hash of its recipe.
package debimage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// Packages is the command that installs what this package runs. It also needs root, for mmdebstrap.
const Packages = "apt-get install mmdebstrap e2fsprogs dosfstools mtools gdisk grub-common grub-pc-bin " +
	"grub-efi-amd64-bin"

// Image is a finished image.
type Image struct {
	Raw  string // the disk as it is, sparse
	Zstd string // the same, compressed
}

// Build returns the image, built now or earlier. The cache is trivet-test in the user's cache directory. It calls
// progress with a line for each step.
func Build(ctx context.Context, progress func(string)) (Image, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return Image{}, err
	}
	dir := filepath.Join(base, "trivet-test", "debian-12-"+key())
	img := Image{Raw: filepath.Join(dir, "disk.raw"), Zstd: filepath.Join(dir, "disk.raw.zst")}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return img, err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return Image{}, err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "new-*")
	if err != nil {
		return Image{}, err
	}
	defer os.RemoveAll(tmp)
	if err := build(ctx, tmp, progress); err != nil {
		return Image{}, fmt.Errorf("build Debian image: %w", err)
	}
	if err := os.Rename(tmp, dir); err != nil && !errors.Is(err, fs.ErrExist) { // it exists if another test was faster
		return Image{}, err
	}
	return img, nil
}

// build writes the image into dir: a directory with the system, the disk's partitions around it, the compressed disk.
func build(ctx context.Context, dir string, progress func(string)) error {
	root, disk := filepath.Join(dir, "root"), filepath.Join(dir, "disk.raw")
	progress("mmdebstrap: a minute")
	if err := run(ctx, "mmdebstrap", mmdebstrapArgs(root)...); err != nil {
		return err
	}
	if err := writeConfig(root); err != nil {
		return err
	}
	progress("make disk")
	for _, step := range []func() error{
		func() error { return makeTable(ctx, disk) },
		func() error { return makeRoot(ctx, disk, root) },
		func() error { return makeESP(ctx, disk, dir) },
		func() error { return makeBIOSBoot(ctx, disk, dir) },
		func() error { return os.RemoveAll(root) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	progress("compress disk")
	return compress(disk, disk+".zst")
}

func compress(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	z, err := zstd.NewWriter(out)
	if err != nil {
		return err
	}
	_, err = io.Copy(z, in)
	return errors.Join(err, z.Close(), out.Close())
}

// key is a hash of all that the image is made of.
func key() string {
	h := sha256.New()
	fmt.Fprintln(h, layoutVersion, mmdebstrapArgs("root"), biosModules, efiModules, partitions, rootUUID)
	for _, f := range config {
		fmt.Fprintln(h, f)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

func run(ctx context.Context, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "MTOOLS_SKIP_CHECK=1", "SOURCE_DATE_EPOCH=1700000000")
	out, err := cmd.CombinedOutput()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("%w; try %s", err, Packages)
	case err != nil:
		return fmt.Errorf("%s: %w: %s", cmd, err, strings.TrimSpace(string(out)))
	}
	return nil
}
