// Package platform builds the installer OS: a Debian kernel, and an initramfs with the drivers that machines need, a
// few programs that actions call (mkfs) and the trivet binary as /init. Everything but that binary comes from Debian
// packages, so the result does not depend on the build host, and equal inputs produce equal bytes.
//
// The pipeline, one file per step: apt finds and downloads the packages, deb unpacks them, modules selects drivers with
// their dependencies, programs selects programs with their libraries, skeleton adds the rest, initramfs writes it.
package platform

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/trivet-project/trivet"
)

// Kernel packages that are tested. The cloud kernel is small and supports virtual machines only.
const (
	KernelGeneric = "linux-image-amd64"
	KernelCloud   = "linux-image-cloud-amd64"
)

// Options configure a build. Binary and Out are required.
type Options struct {
	// Arch is "amd64" (the default) or "arm64".
	Arch string
	// Kernel is the name of a Debian kernel package or of its meta-package. Default: linux-image-ARCH.
	Kernel string
	// Debs are files of Debian packages to use instead of apt's: a kernel, those with the programs of [Programs] and
	// their libraries, and ca-certificates.
	Debs []string
	// Firmware names Debian packages whose /lib/firmware is included (firmware-bnx2x). Their archive must be in apt's
	// sources.
	Firmware []string
	// Modules are glob patterns below /lib/modules/VERSION/kernel that are added to [Modules].
	Modules []string
	// Extra are more files: path in the installer OS to path on this host.
	Extra map[string]string
	// Binary is the trivet binary, statically linked for Arch.
	Binary string
	// Version and Release are those of the binary, for display; empty: unknown.
	Version string
	Release trivet.Release
	// Out is the directory that vmlinuz, initrd.img and platform.json are written to.
	Out string
	// CacheDir keeps downloaded and unpacked packages. Default: trivet/platform in the user's cache directory.
	CacheDir string
	// Progress, if set, is called with one line for each step.
	Progress func(line string)
	Logger   *slog.Logger
}

// Result describes what was built.
type Result struct {
	Arch          string
	KernelVersion string // "6.1.0-56-cloud-amd64"
	Kernel        File
	Initrd        File
	Agent         trivet.PlatformAgent
	Unpacked      int64 // bytes of the initramfs in memory
	Modules       int   // number of drivers
	Packages      []Package
}

// File is a file that was written.
type File struct {
	Path   string
	Bytes  int64
	SHA256 string // hex
}

// Package is a Debian package that the platform is made of.
type Package struct {
	Name    string
	Version string
	SHA256  string // hex, of the .deb
	path    string
}

// Build builds the platform. Errors are trivet.ErrInvalid if the options, the binary or a package are invalid, and
// trivet.ErrUnavailable if packages cannot be downloaded.
func Build(ctx context.Context, o Options) (*Result, error) {
	b, err := newBuilder(o)
	if err != nil {
		return nil, fmt.Errorf("build platform: %w", err)
	}
	r, err := b.build(ctx)
	if err != nil {
		return nil, fmt.Errorf("build platform: %w", err)
	}
	return r, nil
}

type builder struct {
	Options
	machine   arch
	trees     []tree // the unpacked packages
	files     files  // of the initramfs
	libraries map[string]bool
}

func newBuilder(o Options) (*builder, error) {
	o.Arch = cmp.Or(o.Arch, "amd64")
	machine, known := arches[o.Arch]
	if !known {
		return nil, fmt.Errorf("%w: unknown architecture %q; use amd64 or arm64", trivet.ErrInvalid, o.Arch)
	}
	if o.Binary == "" || o.Out == "" {
		return nil, fmt.Errorf("%w: binary and output directory are required", trivet.ErrInvalid)
	}
	o.Kernel = cmp.Or(o.Kernel, "linux-image-"+o.Arch)
	if o.CacheDir == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return nil, err
		}
		o.CacheDir = filepath.Join(dir, "trivet", "platform")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &builder{Options: o, machine: machine, files: files{}, libraries: map[string]bool{}}, nil
}

func (b *builder) build(ctx context.Context) (*Result, error) {
	if err := checkBinary(b.Binary, b.machine); err != nil {
		return nil, err
	}
	packages, err := b.packages(ctx)
	if err != nil {
		return nil, err
	}
	if err := b.unpack(ctx, packages); err != nil {
		return nil, err
	}
	k, err := findKernel(b.trees)
	if err != nil {
		return nil, err
	}
	b.report("collect drivers of %s, programs and certificates", k.version)
	modules, err := b.addModules(k)
	if err != nil {
		return nil, err
	}
	for _, add := range []func() error{b.addPrograms, b.addFirmware, b.addSkeleton, b.addExtra} {
		if err := add(); err != nil {
			return nil, err
		}
	}
	r := &Result{Arch: b.Arch, KernelVersion: k.version, Packages: packages, Modules: modules}
	return r, b.write(ctx, k, r)
}

func (b *builder) write(ctx context.Context, k *kernel, r *Result) error {
	b.report("write kernel and initramfs")
	if err := os.MkdirAll(b.Out, 0o755); err != nil {
		return err
	}
	in, err := os.Open(k.image)
	if err != nil {
		return err
	}
	defer in.Close()
	r.Kernel, err = writeFile(filepath.Join(b.Out, "vmlinuz"), func(w io.Writer) error {
		_, err := io.Copy(w, in)
		return err
	})
	if err != nil {
		return err
	}
	r.Initrd, err = writeFile(filepath.Join(b.Out, "initrd.img"), func(w io.Writer) error {
		return b.writeInitramfs(ctx, w, k.hasZstd(), r)
	})
	if err != nil {
		return err
	}
	return writeBuilt(b.Out, &Built{Arch: r.Arch, Kernel: r.KernelVersion, Initrd: digestPrefix + r.Initrd.SHA256,
		Agent: r.Agent})
}

// writeInitramfs writes two archives, of which the kernel unpacks one after the other: the base, and the agent.
func (b *builder) writeInitramfs(ctx context.Context, w io.Writer, zstd bool, r *Result) error {
	base, agent := gzipBest, gzipBest
	if zstd {
		base, agent = zstdBest, zstdSmall
	}
	f, err := os.Open(b.Binary)
	if err != nil {
		return err
	}
	defer f.Close()
	n := &counter{w: w, ctx: ctx}
	if r.Unpacked, err = b.files.writeTo(ctx, n, base); err != nil {
		return err
	}
	sum, err := digestFile(b.Binary)
	if err != nil {
		return err
	}
	r.Agent = trivet.PlatformAgent{Base: n.n, Program: digestPrefix + sum, Version: b.Version, Release: b.Release}
	size, err := writeAgent(ctx, w, f, agent)
	r.Unpacked += size
	return err
}

// writeFile writes a file under a temporary name and renames it, so that the file is always complete.
func writeFile(path string, fill func(io.Writer) error) (File, error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return File{}, err
	}
	defer os.Remove(f.Name())
	sum := sha256.New()
	if err := errors.Join(fill(io.MultiWriter(f, sum)), f.Chmod(0o644)); err != nil {
		f.Close()
		return File{}, fmt.Errorf("write %s: %w", path, err)
	}
	info, err := f.Stat()
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return File{}, fmt.Errorf("write %s: %w", path, err)
	}
	out := File{Path: path, Bytes: info.Size(), SHA256: hex.EncodeToString(sum.Sum(nil))}
	return out, os.Rename(f.Name(), path)
}

// report reports the progress of the build.
func (b *builder) report(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	b.Logger.Debug("platform: " + line)
	if b.Progress != nil {
		b.Progress(line)
	}
}
