package main

import (
	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet/internal/lab"
)

func labCommand() *cobra.Command {
	r := lab.Testbed{}
	c := &cobra.Command{
		Use:   "lab",
		Short: "Run QEMU machines with BMCs in a network namespace, to try a head with",
		Long: "Run QEMU machines with real firmware, empty disks, IPMI BMCs and serial consoles, on a bridge in a\n" +
			"separate network namespace. Start a head in that namespace to serve them. Requires root and the\n" +
			"Debian packages qemu-system-x86, qemu-utils, ovmf, ipxe-qemu and openipmi. Runs until Ctrl-C;\n" +
			"disks and console logs are kept in --dir.",
		Example: "  trivet lab --dir lab --firmware bios,uefi-http\n" +
			"  ip netns exec trivet-lab trivet server --data-dir lab/head0 --dhcp lab0    # in another terminal\n" +
			"  TRIVET_CONFIG=lab/head0/admin.yaml ip netns exec trivet-lab trivet apply -f lab/machines.yaml",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r.Out = cmd.OutOrStdout()
			return r.Run(cmd.Context())
		},
	}
	f := c.Flags()
	f.StringVar(&r.Dir, "dir", "lab", "directory for disks, console logs and machines.yaml")
	f.StringVar(&r.Name, "netns", "trivet-lab", "name of the network namespace")
	f.StringVar(&r.Address, "address", "10.77.0.1/24", "address of the head on the machines' network")
	f.StringSliceVar(&r.Firmware, "firmware", []string{"bios"}, "firmware of each machine: bios, uefi-pxe or uefi-http")
	f.IntVar(&r.DiskMB, "disk", 4096, "size of each disk in MiB")
	f.IntVar(&r.MemoryMB, "memory", 1024, "memory of each machine in MiB")
	return c
}
