package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/apitypes"
)

func (a *app) patch() *cobra.Command {
	var dryRun bool
	c := &cobra.Command{
		Use:   "patch KIND NAME PATCH",
		Short: "Change fields of a record",
		Long: "Change fields of a record by a merge patch (RFC 7386), as JSON or YAML: what it names is set, null\n" +
			"removes, lists are replaced as a whole, and all other fields stay as they are, also where someone else\n" +
			"changes them at the same time. Labels, annotations and spec can be patched. Write secrets to\n" +
			"standard input (-), as other users of this computer can see the arguments of a command.",
		Example: `  trivet patch machine m1 '{"spec": {"rack": "r2"}}'` + "\n" +
			`  trivet patch machine m1 '{"labels": {"env": null}}' --dry-run` + "\n" +
			"  trivet patch secret bmc - < bmc-patch.yaml",
		Args: patchArgs, ValidArgsFunction: a.completeRecord,
		RunE: func(cmd *cobra.Command, args []string) error {
			info, err := lookupKind(args[0])
			if err != nil {
				return err
			}
			if info.ReadOnly {
				return fmt.Errorf("%w: %s are written by Trivet only", trivet.ErrForbidden, info.Plural)
			}
			patch, err := a.readPatch(info, args[2])
			if err != nil {
				return err
			}
			kind, err := a.kind(args[0])
			if err != nil {
				return err
			}
			return a.patchRecord(cmd.Context(), kind, args[1], patch, dryRun)
		},
	}
	c.Flags().BoolVar(&dryRun, "dry-run", false,
		"validate the result on the server without writing it, and show what would change")
	return c
}

func patchArgs(_ *cobra.Command, args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("%w: write a kind, a name and the patch as one argument, such as "+
			"'{\"labels\": {\"rack\": \"r1\"}}' (-p is the project)", trivet.ErrInvalid)
	}
	return nil
}

// readPatch returns a merge patch as JSON. Fields are checked here: the server keeps those of newer programs.
func (a *app) readPatch(info trivet.KindInfo, text string) ([]byte, error) {
	file, content := "patch", []byte(text)
	if text == "-" {
		var err error
		if content, err = a.readFile(text); err != nil {
			return nil, err
		}
		file = "stdin"
	}
	docs, err := parseYAML(file, content)
	if err != nil {
		return nil, err
	}
	if len(docs) != 1 {
		return nil, fmt.Errorf("%w: write one patch, such as '{\"labels\": {\"rack\": \"r1\"}}'", trivet.ErrInvalid)
	}
	if _, ok := docs[0].value.(map[string]any); !ok {
		return nil, docs[0].locate(&trivet.FieldError{Field: "patch",
			Problem: "must be an object with labels, annotations or spec"})
	}
	if err := apitypes.Check(docs[0].value, reflect.TypeOf(info.New())); err != nil {
		return nil, docs[0].locate(err)
	}
	return json.Marshal(docs[0].value)
}

// patchRecord patches a record and prints what that did. The server applies the patch to what is stored in one
// transaction, so there is no conflict with other writers.
func (a *app) patchRecord(ctx context.Context, kind client.Kind, name string, patch []byte, dryRun bool) error {
	old, err := kind.Get(ctx, name)
	if err != nil {
		return a.interrupted(ctx, err, "interrupted at %s", title(kind.Info, name))
	}
	now, err := kind.DryRun(dryRun).Patch(ctx, name, patch, 0)
	if err != nil {
		return a.interrupted(ctx, err, "interrupted at %s; read it to see whether it is patched", title(kind.Info, name))
	}
	verb, text, note := "patched", "", ""
	if dryRun {
		note = " (dry run)"
		if text, err = (applied{verb: verb, old: old, now: now}).difference(); err != nil {
			return err
		}
	}
	if unchanged(old, now) {
		verb = "unchanged"
	}
	_, err = fmt.Fprintf(a.Out, "%s %s%s\n%s", title(kind.Info, name), verb, note, text)
	return err
}
