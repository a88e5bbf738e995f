package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// notes are the labels or the annotations of records.
type notes struct {
	field, one string // "labels", "label"
	done       string // what is printed of a record that was changed
	of         func(*trivet.Meta) string
}

func (a *app) label() *cobra.Command {
	return a.notesCommand(&cobra.Command{
		Use:   "label KIND NAME... KEY=VALUE... KEY-...",
		Short: "Set and remove labels of records",
		Long: "Set and remove labels of records: KEY=VALUE sets one, KEY- removes it. Other labels stay as they\n" +
			"are, also where someone else changes them at the same time.",
		Example: "  trivet label machine m1 rack=r1 env=test\n  trivet label machines m1 m2 env-",
	}, notes{"labels", "label", "labeled", func(m *trivet.Meta) string { return labelsText(m.Labels) }})
}

func (a *app) annotate() *cobra.Command {
	return a.notesCommand(&cobra.Command{
		Use:   "annotate KIND NAME... KEY=VALUE... KEY-...",
		Short: "Set and remove annotations of records",
		Long: "Set and remove annotations of records: KEY=VALUE sets one, KEY- removes it. Other annotations stay as\n" +
			"they are, also where someone else changes them at the same time.\n\n" +
			"Annotations are notes of people and programs: free text, in which spaces, = and line feeds are allowed.\n" +
			"Nothing is selected by them; use labels for that. A record has at most 64, each of at most 4 KiB, and\n" +
			"16 KiB in all; keys are those of labels. trivet describe shows them. They are no place for secrets.",
		Example: "  trivet annotate machine m1 note='fan 3 is loud, replaced on 2026-03-01'\n" +
			"  trivet annotate provision web1 ticket=https://tracker/OPS-17 owner-",
	}, notes{"annotations", "annotation", "annotated", func(m *trivet.Meta) string {
		return strings.Join(slices.Sorted(maps.Keys(m.Annotations)), ", ")
	}})
}

// notesCommand completes a command that changes notes of records.
func (a *app) notesCommand(c *cobra.Command, n notes) *cobra.Command {
	c.Args, c.ValidArgsFunction = cobra.MinimumNArgs(3), a.completeRecords
	c.RunE = func(cmd *cobra.Command, args []string) error {
		names, patch, err := n.patch(args[1:])
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
		return a.patchNotes(cmd.Context(), kind, names, patch, n)
	}
	return c
}

// patch separates names from changes of notes, and returns these as a merge patch.
func (n notes) patch(args []string) (names []string, patch []byte, err error) {
	changes := map[string]any{}
	for _, arg := range args {
		key, value, sets := strings.Cut(arg, "=")
		removed, removes := strings.CutSuffix(arg, "-")
		switch {
		case !sets && !removes && len(changes) > 0:
			return nil, nil, fmt.Errorf("%w: %q is after a KEY; write names first, and KEY=VALUE or KEY-",
				trivet.ErrInvalid, arg)
		case !sets && !removes:
			names = append(names, arg)
			continue
		case !sets:
			key = removed
		}
		if _, twice := changes[key]; twice || key == "" {
			return nil, nil, fmt.Errorf("%w: %s %q has no key, or is changed twice", trivet.ErrInvalid, n.one, arg)
		}
		changes[key] = nil
		if sets {
			changes[key] = value
		}
	}
	if len(names) == 0 || len(changes) == 0 {
		return nil, nil, fmt.Errorf("%w: write names of records, then KEY=VALUE or KEY-", trivet.ErrInvalid)
	}
	patch, err = json.Marshal(map[string]any{n.field: changes})
	return names, patch, err
}

// patchNotes patches all records, also after one that fails.
func (a *app) patchNotes(ctx context.Context, kind client.Kind, names []string, patch []byte, n notes) error {
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
			PrintError(a.Err, err)
		case now.Header().Revision == old.Header().Revision:
			fmt.Fprintf(a.Out, "%s unchanged\n", title(kind.Info, name))
		default:
			fmt.Fprintf(a.Out, "%s %s: %s\n", title(kind.Info, name), n.done, n.of(now.Header()))
		}
	}
	if failed {
		return ExitError(1)
	}
	return nil
}
