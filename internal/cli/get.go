package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// getOptions are what get is given besides a kind and names.
type getOptions struct {
	client.ListOptions
	follow       bool
	sortBy       string
	since, until string
}

func (a *app) get() *cobra.Command {
	var o getOptions
	c := &cobra.Command{
		Use:   "get KIND [NAME...]",
		Short: "Show records",
		Long: "Show records. Of several names, those that exist are shown, and the exit status is 1 if one does\n" +
			"not. Events are sorted by time.\n\n" + kindsHelp(),
		Example: "  trivet get machines\n" +
			"  trivet get m -l rack=r1 --field status.state=available\n" +
			"  trivet get machine m1 -o yaml\n" +
			"  trivet get machines -o wide --sort-by status.state\n" +
			"  trivet get events --since 1h\n" +
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
			return a.getRecords(cmd.Context(), kind, args[1:], o)
		},
	}
	c.SuggestFor = []string{"list", "show"}
	selectFlags(c, &o.ListOptions)
	c.Flags().BoolVarP(&o.follow, "watch", "w", false, "continue and show every change")
	c.Flags().StringVar(&o.sortBy, "sort-by", "",
		"sort by a field, such as status.state, created or labels.rack; machines also by reputation, the best first")
	c.Flags().StringVar(&o.since, "since", "",
		"of events: not older than a duration (1h) or a time in UTC (2026-01-31, 2026-01-31 12:00:00)")
	c.Flags().StringVar(&o.until, "until", "", "of events: older than a duration or a time")
	c.RegisterFlagCompletionFunc("sort-by", completeFieldsOf)
	c.RegisterFlagCompletionFunc("selector", a.completeSelector)
	c.RegisterFlagCompletionFunc("field", completeFieldSelector)
	a.allProjectsFlag(c)
	c.Flags().BoolVar(&a.showManaged, "show-managed", false,
		"print also, as JSON or YAML, which fields each manager has applied, and which one created the record")
	a.outputForms(c, "table", "wide", "json", "yaml", "name")
	return c
}

// getRecords shows records once, or as they change.
func (a *app) getRecords(ctx context.Context, kind client.Kind, names []string, o getOptions) error {
	if err := checkFields(kind.Info, o.Fields); err != nil {
		return err
	}
	less, err := sorter(kind.Info, o.sortBy)
	if err != nil {
		return err
	}
	during, err := periodOf(kind.Info, o.since, o.until, time.Now())
	if err != nil {
		return err
	}
	if o.follow {
		if o.sortBy != "" || o.since != "" || o.until != "" {
			return fmt.Errorf("%w: --sort-by, --since and --until cannot be combined with -w", trivet.ErrInvalid)
		}
		return a.follow(ctx, kind, names, o.ListOptions)
	}
	found, missing, err := read(ctx, kind, names, o.ListOptions)
	if err != nil {
		return err
	}
	if len(found) == 0 && len(missing) == 1 {
		return missing[0]
	}
	if err := a.loadMore(ctx, kind, found); err != nil {
		return err
	}
	if less == nil && len(names) == 0 && (a.output == "table" || a.output == "wide" || a.output == "name") {
		less = byName
	}
	found = sorted(during(found), less)
	if len(found) > 0 || len(missing) == 0 {
		var records []trivet.Record
		var raw []json.RawMessage
		for _, f := range found {
			records, raw = append(records, f.record), append(raw, f.raw)
		}
		if err := a.show(kind.Info, records, raw, len(names) == 1); err != nil {
			return err
		}
	}
	for _, err := range missing {
		PrintError(a.Err, err)
	}
	if len(missing) > 0 {
		return ExitError(1)
	}
	return nil
}

// selectFlags adds the flags that select records. --field-selector is another name of --field, and --sort of --sort-by.
func selectFlags(c *cobra.Command, o *client.ListOptions) {
	c.Flags().StringVarP(&o.Labels, "selector", "l", "", "select by labels: rack=r1,env!=test")
	c.Flags().StringVar(&o.Fields, "field", "", "select by fields: status.state=available,spec.rack!=r1")
	c.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		switch name {
		case "field-selector":
			name = "field"
		case "sort":
			name = "sort-by"
		}
		return pflag.NormalizedName(name)
	})
}

// found is a record, and as the head sent it.
type found struct {
	record trivet.Record
	raw    json.RawMessage
}

// read returns the named records and the errors of those that do not exist, or all records that match the options.
func read(ctx context.Context, kind client.Kind, names []string, o client.ListOptions) (
	all []found, missing []error, err error) {
	var raw []json.RawMessage
	if len(names) == 0 {
		raw, _, err = kind.RawList(ctx, o)
	}
	for _, name := range names {
		one, err := kind.Raw(ctx, name)
		switch {
		case errors.Is(err, trivet.ErrNotFound) || errors.Is(err, trivet.ErrInvalid):
			missing = append(missing, err)
		case err != nil:
			return nil, nil, err
		default:
			raw = append(raw, one)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	for _, data := range raw {
		r := kind.Info.New()
		if err := json.Unmarshal(data, r); err != nil {
			return nil, nil, err
		}
		all = append(all, found{r, data})
	}
	return all, missing, nil
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
