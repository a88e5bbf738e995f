package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

func (a *app) label() *cobra.Command {
	c := &cobra.Command{
		Use:   "label KIND NAME... KEY=VALUE... KEY-...",
		Short: "Set and remove labels of records",
		Long: "Set and remove labels of records: KEY=VALUE sets one, KEY- removes it. Other labels stay as they\n" +
			"are, also where someone else changes them at the same time.",
		Example: "  trivet label machine m1 rack=r1 env=test\n  trivet label machines m1 m2 env-",
		Args:    cobra.MinimumNArgs(3), ValidArgsFunction: a.completeRecords,
		RunE: func(cmd *cobra.Command, args []string) error {
			names, patch, err := labelPatch(args[1:])
			if err != nil {
				return err
			}
			kind, err := a.kind(args[0])
			if err != nil {
				return err
			}
			if kind.Info.ReadOnly {
				return fmt.Errorf("%w: %s are written by Trivet only", trivet.ErrForbidden, kind.Info.Plural)
			}
			return a.labelAll(cmd.Context(), kind, names, patch)
		},
	}
	return c
}

// labelPatch separates names from changes of labels, and returns these as a merge patch.
func labelPatch(args []string) (names []string, patch []byte, err error) {
	labels := map[string]any{}
	for _, arg := range args {
		key, value, sets := strings.Cut(arg, "=")
		removed, removes := strings.CutSuffix(arg, "-")
		switch {
		case !sets && !removes && len(labels) > 0:
			return nil, nil, fmt.Errorf("%w: %q is after a label; write names first, and KEY=VALUE or KEY-",
				trivet.ErrInvalid, arg)
		case !sets && !removes:
			names = append(names, arg)
			continue
		case !sets:
			key = removed
		}
		if _, twice := labels[key]; twice || key == "" {
			return nil, nil, fmt.Errorf("%w: label %q has no key, or is changed twice", trivet.ErrInvalid, arg)
		}
		labels[key] = nil
		if sets {
			labels[key] = value
		}
	}
	if len(names) == 0 || len(labels) == 0 {
		return nil, nil, fmt.Errorf("%w: write names of records, then KEY=VALUE or KEY-", trivet.ErrInvalid)
	}
	patch, err = json.Marshal(map[string]any{"labels": labels})
	return names, patch, err
}

// labelAll patches all records, also after one that fails.
func (a *app) labelAll(ctx context.Context, kind client.Kind, names []string, patch []byte) error {
	failed := false
	for _, name := range names {
		old, err := kind.Get(ctx, name)
		var now trivet.Record
		if err == nil {
			now, err = kind.Patch(ctx, name, patch, 0)
		}
		switch {
		case err != nil && ctx.Err() != nil:
			return a.interrupted(ctx, err, "interrupted at %s", title(kind.Info, name))
		case err != nil:
			failed = true
			printError(a.Err, err)
		case now.Header().Revision == old.Header().Revision:
			fmt.Fprintf(a.Out, "%s unchanged\n", title(kind.Info, name))
		default:
			fmt.Fprintf(a.Out, "%s labeled: %s\n", title(kind.Info, name), labelsText(now.Header().Labels))
		}
	}
	if failed {
		return ExitError(1)
	}
	return nil
}
