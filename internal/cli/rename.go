package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

func (a *app) rename() *cobra.Command {
	return &cobra.Command{
		Use:   "rename machine NAME NEWNAME",
		Short: "Give a machine another name",
		Long: "Give a machine another name, such as its place in a rack in the place of the one with its MAC under which\n" +
			"it enrolled itself.\n\n" +
			"It stays the same machine: its UID, labels, state, quarantine, MACs and addresses are kept, and a provision\n" +
			"that it serves goes on with it. Its former events and runs have the former name: trivet why shows both.\n" +
			"The name of the host of an installed system does not change, until it is installed again.\n\n" +
			"A machine is not renamed while a run of it is in progress, while its BMC is used, and while a provision\n" +
			"that names it waits for it. Files that name the machine are yours to change; they cannot create it again: as\n" +
			"long as the machine exists, no other one gets one of its last eight names. Other kinds cannot be renamed.",
		Example: "  trivet rename machine m-525400123456 r1-u12\n" +
			"  trivet get machines --field spec.nics.mac=52:54:00:12:34:56    # how it is named now\n" +
			"  while read -r old new; do trivet rename machine \"$old\" \"$new\"; done < names.txt",
		Args: renameArgs, ValidArgsFunction: a.completeRename,
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			m, err := client.Of[trivet.Machine](cl).Get(cmd.Context(), args[1])
			if err != nil {
				return err
			}
			if err := cl.Rename(cmd.Context(), m.Name, trivet.RenameRequest{Name: args[2], UID: m.UID}); err != nil {
				return err
			}
			fmt.Fprintf(a.Out, "machine/%s renamed to %s\n", m.Name, args[2])
			return nil
		},
	}
}

func renameArgs(_ *cobra.Command, args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("%w: write the kind, the name and the new name, such as machine m-525400123456 r1-u12",
			trivet.ErrInvalid)
	}
	info, err := lookupKind(args[0])
	if err == nil && info.Kind != "Machine" {
		err = fmt.Errorf("%w: %s cannot be renamed; only machines can: create it with the new name, and delete the "+
			"former one", trivet.ErrInvalid, info.Plural)
	}
	return err
}

// completeRename completes the kind and the name of a machine.
func (a *app) completeRename(
	cmd *cobra.Command, args []string, _ string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return []cobra.Completion{"machine"}, cobra.ShellCompDirectiveNoFileComp
	case 1:
		return a.names(cmd.Context(), "machines", nil)
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}
