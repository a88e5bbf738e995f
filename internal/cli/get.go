package cli

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

func (a *app) get() *cobra.Command {
	var options client.ListOptions
	var follow bool
	c := &cobra.Command{
		Use:   "get KIND [NAME...]",
		Short: "Show records",
		Long:  "Show records.\n\n" + kindsHelp(),
		Example: "  trivet get machines\n" +
			"  trivet get m -l rack=r1 --field status.state=available\n" +
			"  trivet get machine m1 -o yaml\n" +
			"  trivet get workflows -w\n" +
			"  trivet get templates -A",
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.completeRecords,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.checkAll(args[1:]); err != nil {
				return err
			}
			kind, err := a.kind(args[0])
			if err != nil {
				return err
			}
			if follow {
				return a.follow(cmd.Context(), kind, args[1:], options)
			}
			records, raw, err := read(cmd, kind, args[1:], options)
			if err != nil {
				return err
			}
			return a.show(kind.Info, records, raw, len(args) == 2)
		},
	}
	selectFlags(c, &options)
	c.Flags().BoolVarP(&follow, "watch", "w", false, "continue and show every change")
	a.allProjectsFlag(c)
	a.outputFlag(c)
	return c
}

func selectFlags(c *cobra.Command, o *client.ListOptions) {
	c.Flags().StringVarP(&o.Labels, "selector", "l", "", "select by labels: rack=r1,env!=test")
	c.Flags().StringVar(&o.Fields, "field", "", "select by fields: status.state=available,spec.rack!=r1")
}

// read returns the named records, or all that match the options.
func read(
	cmd *cobra.Command, kind client.Kind, names []string, o client.ListOptions,
) ([]trivet.Record, []json.RawMessage, error) {
	var raw []json.RawMessage
	var err error
	if len(names) == 0 {
		raw, _, err = kind.RawList(cmd.Context(), o)
	}
	for _, name := range names {
		one, err := kind.Raw(cmd.Context(), name)
		if err != nil {
			return nil, nil, err
		}
		raw = append(raw, one)
	}
	if err != nil {
		return nil, nil, err
	}
	var records []trivet.Record
	for _, data := range raw {
		r := kind.Info.New()
		if err := json.Unmarshal(data, r); err != nil {
			return nil, nil, err
		}
		records = append(records, r)
	}
	return records, raw, nil
}

func kindsHelp() string {
	var b strings.Builder
	b.WriteString("Kinds:")
	for _, k := range trivet.Kinds {
		b.WriteString(" " + k.Plural)
		if k.Short != "" {
			fmt.Fprintf(&b, " (%s)", k.Short)
		}
	}
	return b.String()
}
