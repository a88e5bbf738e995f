package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

func (a *app) account() *cobra.Command {
	c := &cobra.Command{Use: "account", Short: "Create and list accounts of people and programs",
		Example: "  trivet account create alice --role operator\n  trivet account list"}
	var role string
	var roles []string
	for _, r := range trivet.AccountRoles {
		roles = append(roles, string(r))
	}
	create := &cobra.Command{
		Use: "create NAME", Short: "Create an account of a person or program",
		Long:    "Create an account of a person or program. trivet token issue NAME creates its tokens.",
		Example: "  trivet account create alice --role operator\n  trivet account create ci && trivet token issue ci",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			account := &trivet.Account{Meta: trivet.Meta{Name: args[0]},
				Spec: trivet.AccountSpec{Role: trivet.AccountRole(role)}}
			if err := account.Validate(); err != nil {
				return err
			}
			cl, err := a.connect()
			if err != nil {
				return err
			}
			created, err := client.Of[trivet.Account](cl).Create(cmd.Context(), account)
			if err != nil {
				return err
			}
			if a.output != "table" {
				return a.showValue(created)
			}
			fmt.Fprintf(a.Out, "account/%s created (%s)\n", created.Name, created.Spec.Role)
			return nil
		},
	}
	create.Flags().StringVar(&role, "role", string(trivet.AccountViewer),
		"what it may do: "+strings.Join(roles[:len(roles)-1], ", ")+" or "+roles[len(roles)-1])
	create.RegisterFlagCompletionFunc("role", cobra.FixedCompletions(roles, cobra.ShellCompDirectiveNoFileComp))
	a.outputForms(create, "table", "json", "yaml")
	c.AddCommand(create, a.listCommand("accounts"))
	return c
}
