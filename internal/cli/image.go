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
		Short: "Import an operating system image",
		Long: "Import an operating system image: a raw disk (convert qcow2 first), a tar archive of a file tree\n" +
			"or an OCI layout, uncompressed or compressed with zstd, gzip or xz. An interrupted transfer is\n" +
			"resumed.",
		Example: "  trivet image import debian-12.raw.zst --name debian-12\n" +
			"  trivet image import https://images.example/d12.tar.xz --name d12 --digest sha256:...",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			err = a.importImage(cmd.Context(), cl, args[0], &f)
			return a.interrupted(cmd.Context(), err,
				"interrupted; image %s is unchanged; to import it, run the command again", f.name)
		},
	}
	c.Flags().StringVar(&f.name, "name", "", "name of the image record")
	c.Flags().StringVar(&f.digest, "digest", "", "expected digest of the file, sha256:...")
	c.Flags().StringVar(&f.format, "format", "", "raw, tar or oci (default: detected from the file)")
	c.Flags().StringVar(&f.arch, "arch", "", "amd64 or arm64 (default: any)")
	c.Flags().BoolVar(&f.replace, "replace", false,
		"replace the image of this name; running workflows keep the old one")
	c.MarkFlagRequired("name")
	return c
}

func (a *app) importImage(ctx context.Context, cl *client.Client, from string, f *importFlags) error {
	images := client.Of[trivet.Image](cl).In(a.project())
	old, err := images.Get(ctx, f.name)
	switch {
	case err == nil && !f.replace:
		return &trivet.Error{Op: "import", Kind: "Image", Name: f.name, Err: trivet.ErrExists,
			Hint: "use another --name, or replace it with --replace"}
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
	m := a.transfer(f.name, size)
	ref, err := cl.PutBlob(ctx, src, client.PutOptions{Digest: f.digest, Bytes: size, Progress: m.update})
	m.end()
	if err != nil {
		return err
	}
	record := &trivet.Image{
		Meta: trivet.Meta{Kind: "Image", Name: f.name},
		Spec: trivet.ImageSpec{Blob: ref, Format: cmp.Or(f.format, info.Format), Compression: info.Compression,
			RawBytes: info.RawBytes, Arch: f.arch},
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
	fmt.Fprintf(a.Out, "image/%s imported: %s, %s\n", f.name, ref.Digest, bytesText(ref.Bytes))
	return nil
}
