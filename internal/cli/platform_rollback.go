package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

func (a *app) platformRollback() *cobra.Command {
	return &cobra.Command{
		Use:   "rollback PLATFORM",
		Short: "Let machines netboot the agent again that a platform had before the last upgrade",
		Long: "Let machines netboot the agent again that a platform had before the last upgrade of the heads. The next\n" +
			"upgrade replaces it.",
		Example: "  trivet platform rollback debian-13\n  trivet upgrade status",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeNames("platforms"),
		RunE: func(cmd *cobra.Command, names []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			version := ""
			_, err = client.Of[trivet.Platform](cl).Modify(cmd.Context(), names[0], func(p *trivet.Platform) error {
				u := p.Followed()
				if u == nil || u.Former == nil {
					return &trivet.Error{Op: "roll back", Kind: "Platform", Name: p.Name,
						Hint: "trivet platform usage; to use another platform: trivet platform assign",
						Err: fmt.Errorf("%w: it has the agent that it was imported with, or has gone back",
							trivet.ErrConflict)}
				}
				version, p.Spec.Back = u.Former.Agent.Version, u.Run
				return nil
			})
			if err == nil {
				fmt.Fprintf(a.Out, "platform/%s goes back to its agent of version %s\n", printable(names[0]),
					printable(orDefault(version, "unknown")))
			}
			return err
		},
	}
}
