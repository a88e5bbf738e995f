package main

import (
	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet/internal/lab"
)

func labCommand() *cobra.Command {
	r := lab.Testbed{}
	c := &cobra.Command{
		Use:   "lab",
		Short: "Run a rack of QEMU machines with real firmware in a network namespace",
		Long: "Run a rack of QEMU machines with real firmware, empty disks, BMCs that speak IPMI and serial consoles, on a bridge\n" +
			"in a network namespace of its own. A head that serves them is started in that namespace. Needs root and\n" +
			"qemu-system-x86, qemu-utils, ovmf, ipxe-qemu, openipmi. Runs until Ctrl-C; disks and consoles stay in --dir.",
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
	f.StringVar(&r.Dir, "dir", "lab", "folder for disks, consoles and machines.yaml")
	f.StringVar(&r.Name, "netns", "trivet-lab", "name of the network namespace")
	f.StringVar(&r.Address, "address", "10.77.0.1/24", "the head's address on the machines' network")
	f.StringSliceVar(&r.Firmware, "firmware", []string{"bios"}, "a machine for each: bios, uefi-pxe or uefi-http")
	f.IntVar(&r.DiskMB, "disk", 4096, "size of each disk in MiB")
	f.IntVar(&r.MemoryMB, "memory", 1024, "memory of each machine in MiB")
	return c
}
