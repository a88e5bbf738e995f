package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/agent/container/oci"
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
		Use:   "import FILE|URL|DIR --name NAME",
		Short: "Import an operating system image",
		Long: "Import an operating system image: a raw disk, a qcow2 disk, a tar archive of a file tree or of a\n" +
			"disk.raw, or an OCI layout (a tar of it, or its directory), uncompressed or compressed with\n" +
			"zstd, gzip or xz; or a docker archive of a container image. - is the standard input. A qcow2 disk, a\n" +
			"disk.raw in an archive, a docker archive and what is compressed by xz are converted while they are\n" +
			"sent, and stored compressed by zstd. What has to be copied for that, such as a qcow2 disk from a URL,\n" +
			"is copied into TMPDIR. An interrupted transfer is resumed. To import the same again changes nothing.\n" +
			"See docs/images.md.",
		Example: "  trivet image import debian-12.raw.zst --name debian-12\n" +
			"  trivet image import debian-12-generic-amd64.qcow2 --name debian-12 --arch amd64\n" +
			"  trivet image import https://images.example/d12.tar.xz --name d12 --digest sha512:...\n" +
			"  ssh builder cat image.raw | trivet image import - --name d12 --replace",
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
	c.Flags().StringVar(&f.digest, "digest", "", "expected digest of the file, sha256:... or sha512:...")
	c.Flags().StringVar(&f.format, "format", "", "raw, tar or oci (default: detected from the file)")
	c.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{image.Raw, image.Tar, image.OCI},
		cobra.ShellCompDirectiveNoFileComp))
	c.Flags().StringVar(&f.arch, "arch", "", "amd64 or arm64 (default: any)")
	c.RegisterFlagCompletionFunc("arch", cobra.FixedCompletions([]string{"amd64", "arm64"},
		cobra.ShellCompDirectiveNoFileComp))
	c.Flags().BoolVar(&f.replace, "replace", false,
		"replace the image of this name; running workflows keep the old one")
	c.MarkFlagRequired("name")
	return c
}

func (a *app) importImage(ctx context.Context, cl *client.Client, from string, f *importFlags) error {
	images := client.Of[trivet.Image](cl).In(a.project())
	old, err := images.Get(ctx, f.name)
	if err != nil && !errors.Is(err, trivet.ErrNotFound) {
		return err
	}
	in, err := a.openImage(ctx, from, f)
	if err != nil {
		return err
	}
	defer in.Close()
	record := &trivet.Image{Meta: trivet.Meta{Kind: "Image", Name: f.name}}
	record.Spec = trivet.ImageSpec{Format: in.info.Format, Compression: in.info.Compression,
		RawBytes: in.info.RawBytes, Arch: f.arch}
	record.Spec.Blob.Digest = "sha256:" + strings.Repeat("0", 64) // until it is known
	if err := record.Validate(); err != nil {
		return err
	}
	if err := a.upload(ctx, cl, in, &record.Spec); err != nil {
		return err
	}
	if old != nil && f.arch == "" && !f.replace {
		record.Spec.Arch = old.Spec.Arch
	}
	switch {
	case old != nil && old.Spec == record.Spec:
		fmt.Fprintf(a.Out, "image/%s unchanged: %s, %s\n", f.name, old.Spec.Blob.Digest, bytesText(old.Spec.Blob.Bytes))
		return nil
	case old != nil && !f.replace:
		return &trivet.Error{Op: "import", Kind: "Image", Name: f.name, Err: fmt.Errorf("%w, with other content: %s",
			trivet.ErrExists, old.Spec.Blob.Digest), Hint: "use another --name, or replace it with --replace"}
	case old == nil:
		_, err = images.Create(ctx, record)
	default:
		record.Labels, record.Annotations = old.Labels, old.Annotations
		_, err = images.Update(ctx, record)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "image/%s imported: %s, %s%s\n", f.name, record.Spec.Blob.Digest,
		bytesText(record.Spec.Blob.Bytes), in.converted())
	return nil
}

// upload stores the image, or what it is converted to.
func (a *app) upload(ctx context.Context, cl *client.Client, in *imageFile, spec *trivet.ImageSpec) (err error) {
	if in.info.Converts() {
		return a.uploadConverted(ctx, cl, in, spec)
	}
	m := a.transfer(in.record, in.size)
	defer m.end()
	o := client.PutOptions{Bytes: in.size, Progress: m.update}
	if in.digest != nil {
		o.Digest = in.digest.String()
	}
	spec.Blob, err = cl.PutBlob(ctx, in, o)
	return err
}

func (a *app) uploadConverted(ctx context.Context, cl *client.Client, in *imageFile,
	spec *trivet.ImageSpec) (err error) {
	m := a.transfer(in.record+": convert and send", in.work())
	defer m.end()
	packed := image.Pack(ctx, func() (io.ReadCloser, error) { return in.content(m.update) })
	defer packed.Close()
	if spec.Blob, err = cl.PutBlob(ctx, packed, client.PutOptions{}); err != nil {
		return fmt.Errorf("%s: %w", in.name, err)
	}
	if spec.Blob.Digest != packed.Digest() {
		return fmt.Errorf("%s: %w: it has changed while it was read; import it again", in.name, trivet.ErrConflict)
	}
	spec.Compression = image.Zstd
	if spec.Format == image.Raw {
		spec.RawBytes = packed.RawBytes()
	}
	return nil
}

// work returns how much a conversion reads; 0: not known.
func (in *imageFile) work() int64 {
	if in.isDir {
		return 0
	}
	return in.file().Work()
}

// content returns what the image is converted to.
func (in *imageFile) content(progress func(done int64)) (io.ReadCloser, error) {
	if in.isDir {
		return oci.Archive(in.name)
	}
	file := in.file()
	file.Progress = progress
	return file.Content()
}

func (in *imageFile) file() *image.File {
	return &image.File{Source: in, Bytes: in.size, Info: in.info, Digest: in.digest}
}

// converted says what was stored instead of the file.
func (in *imageFile) converted() string {
	if !in.info.Converts() {
		return ""
	}
	return fmt.Sprintf(" (converted from %s to %s, compressed by zstd)", cmp.Or(in.info.Within, in.info.Compression),
		in.info.Format)
}
