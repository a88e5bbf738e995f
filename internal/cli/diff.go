package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
)

func (a *app) diff() *cobra.Command {
	var files []string
	o := applyOptions{dryRun: true}
	c := &cobra.Command{
		Use:   "diff -f FILE",
		Short: "Show what applying files would change",
		Long: "Show what applying files would change, by a dry run on the server: labels, annotations and spec of\n" +
			"each record that differs. Values of secrets are not shown. The exit status is 0 if nothing differs, 1 if\n" +
			"something does, and 2 after an error.",
		Example: "  trivet diff -f site.yaml\n  trivet diff -f machines/ || trivet apply -f machines/",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			status, err := a.diffFiles(cmd.Context(), files, o)
			if err != nil {
				if ctx := cmd.Context(); ctx.Err() != nil {
					return a.interrupted(ctx, err, "interrupted")
				}
				PrintError(a.Err, err)
				status = 2
			}
			if status != 0 {
				return ExitError(status)
			}
			return nil
		},
	}
	c.Flags().StringArrayVarP(&files, "file", "f", nil, "file, directory or - for standard input; can be repeated")
	o.ownerFlags(c)
	c.MarkFlagRequired("file")
	return c
}

// diffFiles prints the differences of all records, also after one that is refused, and returns the exit status.
func (a *app) diffFiles(ctx context.Context, files []string, o applyOptions) (status int, err error) {
	if err := o.check(); err != nil {
		return 2, err
	}
	manifests, err := a.readTogether(files)
	if err != nil {
		return 2, err
	}
	cl, err := a.connect()
	if err != nil {
		return 2, err
	}
	var pending []*manifest // what differs
	for _, m := range manifests {
		done, err := applyOne(ctx, cl.Kind(m.info).In(m.project(a)), m, o)
		if err != nil && ctx.Err() != nil {
			return 2, err
		}
		if a.deferred(m, err, pending) {
			status, pending = max(status, 1), append(pending, m)
			continue
		}
		if err != nil {
			status = 2
			PrintError(a.Err, m.refused(err))
			continue
		}
		text, err := done.difference()
		if err != nil {
			return 2, err
		}
		if done.verb == "unchanged" {
			continue
		}
		status, pending = max(status, 1), append(pending, m)
		fmt.Fprintf(a.Out, "%s would be %s\n%s", m.title(), done.verb, text)
	}
	return status, nil
}

// applied is what the application of a record did, or would do.
type applied struct {
	verb     string
	old, now trivet.Record // old is nil where it was created
	whole    bool          // it was replaced as a whole, as a head of an earlier release does
}

// difference returns the lines of labels, annotations and spec that differ.
func (d applied) difference() (string, error) {
	before, err := desired(d.old)
	if err != nil {
		return "", err
	}
	after, err := desired(d.now)
	return diffText(before, after), err
}

// desired returns what people write of a record as YAML; empty for none.
func desired(r trivet.Record) (string, error) {
	if r == nil {
		return "", nil
	}
	full, err := json.Marshal(r)
	if err != nil {
		return "", err
	}
	var part struct {
		Labels      json.RawMessage `json:"labels,omitempty"`
		Annotations json.RawMessage `json:"annotations,omitempty"`
		Spec        json.RawMessage `json:"spec,omitempty"`
	}
	if err := json.Unmarshal(full, &part); err != nil {
		return "", err
	}
	text, err := json.Marshal(part)
	if err != nil {
		return "", err
	}
	yaml, err := yamlOf(text, false)
	return string(yaml), err
}
