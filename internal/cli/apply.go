package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet/client"
)

func (a *app) apply() *cobra.Command {
	var files []string
	var o applyOptions
	c := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Create or update records from files",
		Long: "Create or update records from files.\n\n" +
			"What a file has is set. What it lacks is removed if an earlier apply has set it; all else stays as it is, such\n" +
			"as the MAC of a machine that enrolled, or what others have set. A field that was changed otherwise since\n" +
			"it was applied, by edit, patch, label or another program, is a conflict, and the record is not changed:\n" +
			"write the value of the record into the file, or overwrite it by --force-conflicts. Lists are fields as a\n" +
			"whole. Who applies different files to the same records names each set by --field-manager; with it,\n" +
			"--prune deletes the records that an earlier apply of the set created, and the files no longer have.\n\n" +
			"All files are validated before anything is sent; errors are shown with their line. Records are sent after\n" +
			"those that they refer to. A dry run checks each by what is stored, and prints which it cannot check, as\n" +
			"they refer to others of the same files that it would change. A record with a generation, as get prints\n" +
			"it, replaces that generation, and is rejected if it has been changed since. A record that names no project\n" +
			"is applied to that of --project.",
		Example: "  trivet apply -f site.yaml\n" +
			"  trivet apply -f machines/ --dry-run\n" +
			"  trivet apply -f site/ --field-manager site --prune\n" +
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
			return a.applyAll(cmd.Context(), cl, manifests, o)
		},
	}
	c.SuggestFor = []string{"create"}
	c.Flags().StringArrayVarP(&files, "file", "f", nil, "file, directory or - for standard input; can be repeated")
	c.Flags().BoolVar(&o.dryRun, "dry-run", false,
		"validate the records on the server without writing them, and show what would change")
	o.ownerFlags(c)
	c.Flags().BoolVar(&o.prune, "prune", false,
		"delete what an earlier apply of the same --field-manager created and the files no longer have")
	c.Flags().BoolVar(&o.yes, "yes", false, "do not ask before records are deleted")
	c.MarkFlagRequired("file")
	return c
}

// applyAll sends every record, even after one was rejected, and fails if any was.
func (a *app) applyAll(ctx context.Context, cl *client.Client, manifests []*manifest, o applyOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	if err := a.newProjects(ctx, cl, manifests); err != nil {
		return err
	}
	doubts := a.newDoubts(cl, manifests)
	failed, warned := false, false
	var pending []*manifest // what a dry run would change
	for i, m := range manifests {
		done, err := applyOne(ctx, cl.Kind(m.info).In(m.project(a)), m, o)
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
		if done.whole && !warned {
			warned = true
			fmt.Fprintln(a.Err, "trivet: warning: not all heads can merge yet (trivet head list): "+
				"records are replaced as a whole")
		}
		text := ""
		if o.dryRun {
			if text, err = done.difference(); err != nil {
				return err
			}
			if done.verb != "unchanged" {
				pending = append(pending, m)
			}
		}
		fmt.Fprintf(a.Out, "%s %s%s\n%s", m.title(), done.verb, o.note(), text)
		if !o.dryRun {
			a.warn(ctx, doubts, m, done)
		}
	}
	if failed {
		return ExitError(1)
	}
	if o.prune {
		return a.pruneRecords(ctx, cl, manifests, o)
	}
	return nil
}
