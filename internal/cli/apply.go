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
		Short: "Create or update records from files",
		Long: "Create or update records from files.\n\n" +
			"All files are validated before anything is sent; errors are shown with their line. Records are sent after\n" +
			"those that they refer to. A dry run checks each by what is stored, and prints which it cannot check, as\n" +
			"they refer to others of the same files that it would change. A record with a\n" +
			"generation is rejected if it has been changed since that generation. A record that names no project is\n" +
			"applied to that of --project.",
		Example: "  trivet apply -f site.yaml\n" +
			"  trivet apply -f machines/ --dry-run\n" +
			"  trivet get machine m1 -o yaml | sed s/r1/r2/ | trivet apply -f -",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			manifests, err := a.readTogether(files)
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
	c.SuggestFor = []string{"create"}
	c.Flags().StringArrayVarP(&files, "file", "f", nil, "file, directory or - for standard input; can be repeated")
	c.Flags().BoolVar(&dryRun, "dry-run", false,
		"validate the records on the server without writing them, and show what would change")
	c.MarkFlagRequired("file")
	return c
}

// applyAll sends every record, even after one was rejected, and fails if any was.
func (a *app) applyAll(ctx context.Context, cl *client.Client, manifests []*manifest, dryRun bool) error {
	failed := false
	note := ""
	if dryRun {
		note = " (dry run)"
	}
	var pending []*manifest // what a dry run would change
	for i, m := range manifests {
		done, err := applyOne(ctx, cl.Kind(m.info).In(m.project(a)).DryRun(dryRun), m)
		if err != nil && ctx.Err() != nil {
			return a.interrupted(ctx, err, "interrupted at %s, %d of %d; run the same command again to apply the rest",
				m.title(), i+1, len(manifests))
		}
		if a.deferred(m, err, pending) {
			pending = append(pending, m)
			continue
		}
		if err != nil {
			failed = true
			PrintError(a.Err, m.refused(err))
			continue
		}
		text := ""
		if dryRun {
			if text, err = done.difference(); err != nil {
				return err
			}
			if done.old != nil && wouldNotChange(done.old, done.now, text) {
				done.verb = "unchanged"
			} else {
				pending = append(pending, m)
			}
		}
		fmt.Fprintf(a.Out, "%s %s%s\n%s", m.title(), done.verb, note, text)
	}
	if failed {
		return ExitError(1)
	}
	return nil
}

// applyOne creates or replaces a record and returns what it did.
func applyOne(ctx context.Context, kind client.Kind, m *manifest) (done applied, err error) {
	name := m.record.Header().Name
	old, err := kind.Get(ctx, name)
	if errors.Is(err, trivet.ErrNotFound) {
		created, createErr := kind.CreateRaw(ctx, name, m.body)
		if !errors.Is(createErr, trivet.ErrExists) {
			return applied{"created", nil, created}, createErr
		}
		if old, err = kind.Get(ctx, name); errors.Is(err, trivet.ErrNotFound) {
			return applied{}, createErr // what exists is not the record but, for example, its MAC
		}
	}
	if err != nil {
		return applied{}, err
	}
	got, err := kind.UpdateRaw(ctx, name, m.body)
	if err != nil {
		return applied{}, err
	}
	if unchanged(old, got) {
		return applied{"unchanged", old, got}, nil
	}
	return applied{"configured", old, got}, nil
}

// unchanged reports whether a write changed nothing.
func unchanged(old, now trivet.Record) bool {
	return now.Header().Revision == old.Header().Revision && now.Header().Generation == old.Header().Generation
}
