package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

func (a *app) apply() *cobra.Command {
	var files []string
	var dryRun bool
	c := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Create records, or change them to what files say",
		Long: "Create records, or change them to what files say.\n\n" +
			"All files are checked before anything is sent; a mistake is shown with its line. A record that carries a\n" +
			"generation is refused when somebody has changed it since.",
		Example: "  trivet apply -f site.yaml\n" +
			"  trivet apply -f machines/ --dry-run\n" +
			"  trivet get machine m1 -o yaml | sed s/r1/r2/ | trivet apply -f -",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			manifests, err := a.readManifests(files)
			if err != nil {
				return err
			}
			cl, err := a.connect()
			if err != nil {
				return err
			}
			return a.applyAll(cmd.Context(), cl, manifests, dryRun)
		},
	}
	c.Flags().StringArrayVarP(&files, "file", "f", nil, "file, folder or - for the standard input; may be given again")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "let the head check everything and write nothing")
	c.MarkFlagRequired("file")
	return c
}

// applyAll sends every record, also after one was refused, and fails if any was.
func (a *app) applyAll(ctx context.Context, cl *client.Client, manifests []*manifest, dryRun bool) error {
	failed := false
	note := ""
	if dryRun {
		note = " (dry run)"
	}
	for i, m := range manifests {
		verb, err := applyOne(ctx, cl.Kind(m.info).DryRun(dryRun), m)
		if err != nil && ctx.Err() != nil {
			return a.stopped(ctx, err, "stopped at %s, %d of %d; apply the same again, what is so already stays", m.title(), i+1, len(manifests))
		}
		if err != nil {
			failed = true
			tell(a.Err, m.locate(err))
			continue
		}
		fmt.Fprintf(a.Out, "%s %s%s\n", m.title(), verb, note)
	}
	if failed {
		return ExitError(1)
	}
	return nil
}

// applyOne creates or replaces a record and says which.
func applyOne(ctx context.Context, kind client.Kind, m *manifest) (verb string, err error) {
	name := m.record.Header().Name
	there, err := kind.Get(ctx, name)
	if errors.Is(err, trivet.ErrNotFound) {
		_, createErr := kind.CreateRaw(ctx, name, m.body)
		if !errors.Is(createErr, trivet.ErrExists) {
			return "created", createErr
		}
		if there, err = kind.Get(ctx, name); errors.Is(err, trivet.ErrNotFound) {
			return "", createErr // what exists is something of the record's, such as a MAC
		}
	}
	if err != nil {
		return "", err
	}
	got, err := kind.UpdateRaw(ctx, name, m.body)
	if err != nil {
		return "", err
	}
	if got.Header().Revision == there.Header().Revision && got.Header().Generation == there.Header().Generation {
		return "unchanged", nil
	}
	return "configured", nil
}
