package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/platform"
)

func (a *app) platform() *cobra.Command {
	c := &cobra.Command{
		Use: "platform", Short: "Build, import, assign and remove the platforms that machines netboot",
		Long: "Build, import, assign and remove the platforms that machines netboot: the kernel and initramfs of the\n" +
			"installer OS. A machine netboots the platform that its record names, or else the default of the site.\n" +
			"A new one is tried on a few machines first, and becomes the default then.",
		Example: "  trivet platform import platform/ --name debian-13\n" +
			"  trivet platform assign debian-13 -l canary=true\n" +
			"  trivet platform set-default debian-13\n" +
			"  trivet platform assign --default -l canary=true\n" +
			"  trivet platform rollback debian-13\n" +
			"  trivet platform remove debian-12",
	}
	c.AddCommand(a.platformBuild(), a.platformImport(), a.listCommand("platforms"), a.platformUsage(),
		a.platformAssign(), a.platformSetDefault(), a.platformRollback(), a.platformRemove())
	return c
}

func (a *app) platformBuild() *cobra.Command {
	var o platform.Options
	c := &cobra.Command{
		Use:   "build --out DIR",
		Short: "Build the installer OS: a Debian kernel and an initramfs with this program as init",
		Example: "  trivet platform build --out platform/\n" +
			"  trivet platform build --out platform/ --kernel linux-image-cloud-amd64   # small, for virtual machines\n" +
			"  trivet platform import platform/ --name debian-12 --default",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.ownBinary(&o); err != nil {
				return err
			}
			o.Progress = func(line string) { fmt.Fprintln(a.Err, line) }
			r, err := platform.Build(cmd.Context(), o)
			if err != nil {
				return err
			}
			fmt.Fprintf(a.Out, "built kernel %s for %s with %d modules: kernel %s, initramfs %s\n", r.KernelVersion,
				r.Arch, r.Modules,
				bytesText(r.Kernel.Bytes), bytesText(r.Initrd.Bytes))
			return nil
		},
	}
	c.Flags().StringVar(&o.Out, "out", "", "directory for vmlinuz, initrd.img and platform.json")
	c.Flags().StringVar(&o.Arch, "arch", "", "amd64 or arm64 (default amd64)")
	c.Flags().StringVar(&o.Kernel, "kernel", "", "Debian kernel package (default linux-image-ARCH)")
	c.Flags().StringArrayVar(&o.Debs, "deb", nil, "use this .deb file instead of packages from apt; can be repeated")
	c.Flags().StringArrayVar(&o.Firmware, "firmware", nil, "Debian firmware package to include; can be repeated")
	c.Flags().StringArrayVar(&o.Modules, "module", nil,
		"glob of additional modules, relative to the kernel's module directory; can be repeated")
	c.Flags().StringToStringVar(&o.Extra, "extra", nil, "additional files: path in the installer OS=local path")
	c.Flags().StringVar(&o.Binary, "binary", "", "static trivet binary for that architecture (default: this program)")
	c.MarkFlagRequired("out")
	return c
}

// ownBinary makes this program the agent, unless there is another one, whose version is not known.
func (a *app) ownBinary(o *platform.Options) (err error) {
	if o.Binary == "" {
		o.Binary, err = os.Executable()
		o.Version, o.Release = a.Version, trivet.CurrentRelease
	}
	return err
}

func (a *app) platformImport() *cobra.Command {
	var name, arch, version string
	var args []string
	var makeDefault bool
	c := &cobra.Command{
		Use:   "import DIR --name NAME",
		Short: "Import a kernel and an initramfs as a platform",
		Long: "Import vmlinuz and initrd.img from a directory, and create or update the platform record that\n" +
			"machines netboot. With platform.json, which trivet platform build has written beside them, it follows\n" +
			"upgrades of the heads (trivet upgrade run): machines get an agent of the heads' version.",
		Example: "  trivet platform import platform/ --name debian-12 --default",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, dirs []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			p := &trivet.Platform{
				Meta: trivet.Meta{Kind: "Platform", Name: name},
				Spec: trivet.PlatformSpec{Arch: arch, Version: version, Args: args},
			}
			if err = describeBuilt(p, dirs[0], cmd.Flags().Changed("arch")); err != nil {
				return err
			}
			err = a.importPlatform(cmd.Context(), cl, dirs[0], p)
			if err == nil && makeDefault {
				err = a.setDefaultPlatform(cmd.Context(), cl, name)
			}
			return a.interrupted(cmd.Context(), err, "interrupted; to import platform %s, run the command again", name)
		},
	}
	c.Flags().StringVar(&name, "name", "", "name of the platform record")
	c.Flags().StringVar(&arch, "arch", "amd64", "amd64 or arm64; by default what was built")
	c.Flags().StringVar(&version, "version", "", "version of the kernel and trivet, for display")
	c.Flags().StringArrayVar(&args, "arg", nil, "kernel argument for all machines; can be repeated")
	c.Flags().BoolVar(&makeDefault, "default", false, "make it the default platform of the site")
	c.MarkFlagRequired("name")
	return c
}

// describeBuilt adds what platform.json of a directory says of its files. fixed: the architecture was named.
func describeBuilt(p *trivet.Platform, dir string, fixed bool) error {
	b, err := platform.ReadBuilt(dir)
	if b == nil || err != nil {
		return err
	}
	if fixed && b.Arch != p.Spec.Arch {
		return &trivet.Error{Op: "import", Kind: "Platform", Name: p.Name, Hint: "leave out --arch",
			Err: fmt.Errorf("%w: %s was built for %s", trivet.ErrInvalid, dir, b.Arch)}
	}
	p.Spec.Arch, p.Spec.Agent, p.Spec.Initrd.Digest = b.Arch, &b.Agent, b.Initrd
	return nil
}

func (a *app) importPlatform(ctx context.Context, cl *client.Client, dir string, p *trivet.Platform) error {
	var err error
	built := p.Spec.Initrd.Digest
	if p.Spec.Kernel, err = a.putFile(ctx, cl, filepath.Join(dir, "vmlinuz")); err != nil {
		return err
	}
	if p.Spec.Initrd, err = a.putFile(ctx, cl, filepath.Join(dir, "initrd.img")); err != nil {
		return err
	}
	if p.Spec.Agent != nil && p.Spec.Initrd.Digest != built {
		fmt.Fprintf(a.Err, "trivet: warning: platform.json describes another initrd.img: the platform will not follow "+
			"upgrades of the heads\n")
		p.Spec.Agent = nil
	}
	platforms := client.Of[trivet.Platform](cl)
	_, err = platforms.Create(ctx, p)
	if errors.Is(err, trivet.ErrExists) {
		_, err = platforms.Modify(ctx, p.Name, func(stored *trivet.Platform) error {
			stored.Spec = p.Spec // labels and annotations stay
			return nil
		})
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "platform/%s imported: kernel %s, initramfs %s\n", p.Name, bytesText(p.Spec.Kernel.Bytes),
		bytesText(p.Spec.Initrd.Bytes))
	return nil
}

func (a *app) putFile(ctx context.Context, cl *client.Client, path string) (trivet.BlobRef, error) {
	src, size, err := openSource(ctx, path)
	if err != nil {
		return trivet.BlobRef{}, err
	}
	defer src.Close()
	m := a.transfer(filepath.Base(path), size)
	defer m.end()
	return cl.PutBlob(ctx, src, client.PutOptions{Bytes: size, Progress: m.update})
}
