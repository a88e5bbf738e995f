package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/image"
)

func (a *app) image() *cobra.Command {
	c := &cobra.Command{Use: "image", Short: "Import and list operating system images"}
	c.AddCommand(a.imageImport(), a.listCommand("images"))
	return c
}

func (a *app) listCommand(plural string) *cobra.Command {
	get := a.get()
	c := &cobra.Command{Use: "list", Short: "List " + plural, Args: cobra.NoArgs}
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		get.SetContext(cmd.Context())
		return get.RunE(get, []string{plural})
	}
	a.outputFlag(c)
	return c
}

type importFlags struct {
	name, digest, format, arch string
	replace                    bool
}

func (a *app) imageImport() *cobra.Command {
	var f importFlags
	c := &cobra.Command{
		Use:   "import FILE|URL --name NAME",
		Short: "Store an image at the heads",
		Long: "Store an image at the heads: raw disks (a qcow2 must be converted), tar archives of a file tree, and OCI layouts,\n" +
			"plain or compressed with zstd, gzip or xz. A transfer that breaks goes on where it was.",
		Example: "  trivet image import debian-12.raw.zst --name debian-12\n" +
			"  trivet image import https://images.example/d12.tar.xz --name d12 --digest sha256:...",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			err = a.importImage(cmd.Context(), cl, args[0], &f)
			return a.stopped(cmd.Context(), err, "stopped; image %s is as it was, and what was sent is given up: import it again", f.name)
		},
	}
	c.Flags().StringVar(&f.name, "name", "", "name of the image's record")
	c.Flags().StringVar(&f.digest, "digest", "", "what the file must be, sha256:...")
	c.Flags().StringVar(&f.format, "format", "", "raw, tar or oci; none: what the file looks like")
	c.Flags().StringVar(&f.arch, "arch", "", "amd64 or arm64; none: any")
	c.Flags().BoolVar(&f.replace, "replace", false, "let an image of this name mean the new content; runs keep what they began with")
	c.MarkFlagRequired("name")
	return c
}

func (a *app) importImage(ctx context.Context, cl *client.Client, from string, f *importFlags) error {
	images := client.Of[trivet.Image](cl)
	old, err := images.Get(ctx, f.name)
	switch {
	case err == nil && !f.replace:
		return &trivet.Error{Op: "import", Kind: "Image", Name: f.name, Err: trivet.ErrExists, Hint: "choose another --name, or --replace it"}
	case err != nil && !errors.Is(err, trivet.ErrNotFound):
		return err
	}
	src, size, err := openSource(ctx, from)
	if err != nil {
		return err
	}
	defer src.Close()
	info, err := image.Inspect(src, size)
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	m := a.meter(f.name, size)
	ref, err := cl.PutBlob(ctx, src, client.PutOptions{Digest: f.digest, Bytes: size, Progress: m.at})
	m.end()
	if err != nil {
		return err
	}
	record := &trivet.Image{
		Meta: trivet.Meta{Kind: "Image", Name: f.name},
		Spec: trivet.ImageSpec{Blob: ref, Format: cmp.Or(f.format, info.Format), Compression: info.Compression, RawBytes: info.RawBytes, Arch: f.arch},
	}
	if old == nil {
		_, err = images.Create(ctx, record)
	} else {
		record.Labels = old.Labels
		_, err = images.Update(ctx, record)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "image/%s %s, %s\n", f.name, ref.Digest, bytesText(ref.Bytes))
	return nil
}
