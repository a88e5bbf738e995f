package cli

import (
	"encoding/pem"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
)

func (a *app) ca() *cobra.Command {
	c := &cobra.Command{
		Use: "ca", Short: "Write the CA that firmware verifies the heads by",
		Example: "  trivet ca export > boot-ca.pem",
	}
	c.AddCommand(a.caExport())
	return c
}

func (a *app) caExport() *cobra.Command {
	var form string
	var all bool
	c := &cobra.Command{
		Use:   "export",
		Short: "Write the CA of the boot servers to the standard output",
		Long: "Write the CA of the boot servers, an RSA certificate, to the standard output. Enrol it in the firmware\n" +
			"of machines that boot by UEFI HTTPS, in networks with spec.bootHTTPS. All heads have the same one; it\n" +
			"is not the CA of the API. While it is replaced (trivet rotate boot-ca), it is the new one.\n\n" +
			"pem is what BMCs take by Redfish, and iPXE's build as TRUST; der is what the setup of firmware enrols\n" +
			"from a file; efi is an EFI signature list, as QEMU gives it to OVMF.\n\n" +
			"--all adds those that it replaces, and what they have signed of their successors: an iPXE must be built\n" +
			"with one TRUST for each, since it accepts no CA that the heads do not send.",
		Example: "  trivet ca export > boot-ca.pem\n" +
			"  trivet ca export -o der > /media/esp/boot-ca.der\n\n" +
			"  # all that iPXE is built with after a rotation, in one file each\n" +
			"  trivet ca export --all | csplit -z -f trust- - '/BEGIN/' '{*}'\n\n" +
			"  # a virtual machine with OVMF\n" +
			"  trivet ca export -o efi > cacerts.bin\n" +
			"  qemu-system-x86_64 -fw_cfg name=etc/edk2/https/cacerts,file=cacerts.bin ...",
		Args: cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error {
			if !slices.Contains(caForms, form) {
				return fmt.Errorf("%w: unknown output format %s; the formats are pem, der and efi", trivet.ErrInvalid, form)
			}
			if all && form != "pem" {
				return &trivet.FieldError{Field: "--all", Problem: "is for the output format pem: " + form + " has one CA"}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			ca, err := cl.BootCA(cmd.Context())
			if err != nil {
				return err
			}
			out, err := encodeCA([]byte(ca.Certificate), form)
			if err != nil {
				return err
			}
			if all {
				out = append(out, ca.Former+ca.Links...)
			}
			_, err = a.Out.Write(out)
			return err
		},
	}
	c.Flags().StringVarP(&form, "output", "o", caForms[0], "pem, der or efi")
	c.Flags().BoolVar(&all, "all", false, "also those that it replaces, and what they have signed")
	c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(caForms, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// caForms are the forms of trivet ca export.
var caForms = []string{"pem", "der", "efi"}

// encodeCA returns a certificate, which is given in PEM, in a form of trivet ca export.
func encodeCA(certificate []byte, form string) ([]byte, error) {
	block, _ := pem.Decode(certificate)
	switch {
	case block == nil || block.Type != "CERTIFICATE":
		return nil, fmt.Errorf("%w: the head returned no certificate", trivet.ErrInvalid)
	case form == "der":
		return block.Bytes, nil
	case form == "efi":
		return auth.SignatureList(block.Bytes), nil
	}
	return pem.EncodeToMemory(block), nil
}
