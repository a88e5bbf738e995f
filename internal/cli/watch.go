package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

func (a *app) watch() *cobra.Command {
	var options client.WatchOptions
	c := &cobra.Command{
		Use:     "watch [KIND[,KIND...]] [NAME...]",
		Short:   "Watch records for changes",
		Example: "  trivet watch machines,workflows\n  trivet watch events\n  trivet watch machine m1 -o json",
		Args:    cobra.ArbitraryArgs, ValidArgsFunction: a.completeRecords,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				for name := range strings.SplitSeq(args[0], ",") {
					info, err := lookupKind(name)
					if err != nil {
						return err
					}
					options.Kinds = append(options.Kinds, info.Kind)
				}
				options.Names = args[1:]
			}
			if err := a.checkAll(options.Names); err != nil {
				return err
			}
			options.Project = a.watched()
			cl, err := a.connect()
			if err != nil {
				return err
			}
			return a.changes(cmd.Context(), cl, options)
		},
	}
	c.Flags().StringVarP(&options.Labels, "selector", "l", "", "label selector, such as rack=r1,env!=test")
	c.Flags().Int64Var(&options.From, "from", 0, "print only the changes after this revision")
	a.allProjectsFlag(c)
	a.outputFlag(c)
	return c
}

// changes prints one line or one object per event.
func (a *app) changes(ctx context.Context, cl *client.Client, o client.WatchOptions) error {
	for e, err := range cl.Watch(ctx, o) {
		if err != nil {
			return err
		}
		if err := a.change(e); err != nil {
			return err
		}
	}
	return nil
}

// nameOf returns the name of an event's record, with its project among all projects.
func (a *app) nameOf(e client.Event) string {
	if a.allProjects {
		return trivet.FullName(e.Project, e.Name)
	}
	return e.Name
}

func (a *app) change(e client.Event) error {
	if a.output == "json" {
		line := map[string]any{"type": e.Type, "kind": e.Kind, "name": e.Name, "revision": e.Revision, "record": e.Raw}
		if e.Project != "" {
			line["project"] = e.Project
		}
		return json.NewEncoder(a.Out).Encode(line)
	}
	if e.Type == client.Synced || e.Type == client.Reset {
		fmt.Fprintf(a.Err, "-- %s\n", e.Type)
		return nil
	}
	name := strings.ToLower(string(e.Kind)) + "/" + a.nameOf(e)
	if e.Type == client.Delete || a.output == "name" {
		_, err := fmt.Fprintf(a.Out, "%-8d %-6s %s\n", e.Revision, e.Type, name)
		return err
	}
	if a.output == "yaml" {
		fmt.Fprintln(a.Out, "---")
		return a.showYAML([]json.RawMessage{e.Raw})
	}
	info, err := trivet.LookupKind(string(e.Kind))
	if err != nil {
		return nil
	}
	var cells []string
	for i, cell := range cellsOf(columnsFor(info), e.Record)[1:] {
		if cell != "" {
			cells = append(cells, strings.ToLower(columnsFor(info).titles[i])+"="+cell)
		}
	}
	_, err = fmt.Fprintf(a.Out, "%-8d %-6s %s  %s\n", e.Revision, e.Type, name, strings.Join(cells, " "))
	return err
}

// follow implements get -w: it prints the table, and then a row per change.
func (a *app) follow(ctx context.Context, kind client.Kind, names []string, o client.ListOptions) error {
	if o.Fields != "" {
		return fmt.Errorf("%w: --field cannot be combined with -w; use -l or names", trivet.ErrInvalid)
	}
	watch := client.WatchOptions{Kinds: []trivet.Kind{kind.Info.Kind}, Project: a.watched(), Names: names,
		Labels: o.Labels}
	if a.output != "table" && a.output != "wide" {
		return a.changes(ctx, kind.Client(), watch)
	}
	var first []trivet.Record
	synced := false
	for e, err := range kind.Client().Watch(ctx, watch) {
		switch {
		case err != nil:
			return err
		case e.Type == client.Reset:
			first, synced = nil, false
		case e.Type == client.Put && !synced:
			first = append(first, e.Record)
		case e.Type == client.Synced:
			synced = true
			slices.SortFunc(first, func(x, y trivet.Record) int {
				return byName(found{record: x}, found{record: y})
			})
			if err := a.table(kind.Info, first); err != nil {
				return err
			}
		case e.Type == client.Put:
			fmt.Fprintln(a.Out, strings.TrimRight(strings.Join(a.row(kind.Info, e.Record), "   "), " "))
		case e.Type == client.Delete:
			fmt.Fprintln(a.Out, a.nameOf(e)+"   (deleted)")
		}
	}
	return nil
}
