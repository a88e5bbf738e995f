package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

func (a *app) delete() *cobra.Command {
	var files []string
	var ignore, force, yes bool
	c := &cobra.Command{
		Use:   "delete KIND NAME... | KIND/NAME...",
		Short: "Delete records",
		Long: "Delete records.\n\n" +
			"Deleting a provision cancels its workflow and releases its machine. An installed system is powered off\n" +
			"by its BMC, and then the machine is available. Without a BMC it is available once it has booted the\n" +
			"installer, or after trivet accept. The disks are not wiped, and the next provision may overwrite them,\n" +
			"unless spec.release of the site is wipe or keep-data; trivet release says it for one machine.\n\n" +
			"Before a provision that has machines is deleted, an account, or a machine that is in use, the command\n" +
			"says what follows, and asks; --yes is for programs.\n\n" +
			"A record that others refer to is not deleted: a platform in use, the secret of a BMC, the template of\n" +
			"a provision that has not ended. --force deletes it, and prints which records refer to nothing then.",
		Example: "  trivet delete provision web1\n  trivet delete provision/web1 machine/m1\n" +
			"  trivet delete -f site.yaml --ignore-not-found --yes",
		Args: cobra.ArbitraryArgs, ValidArgsFunction: a.completeRecords,
		RunE: func(cmd *cobra.Command, args []string) error {
			targets, err := a.targets(args, files)
			if err != nil {
				return err
			}
			cl, err := a.connect()
			if err != nil {
				return err
			}
			if !yes {
				if err := a.confirmDelete(cmd.Context(), cl, targets); err != nil {
					return err
				}
			}
			return a.deleteAll(cmd.Context(), cl, targets, force, ignore)
		},
	}
	c.Flags().StringArrayVarP(&files, "file", "f", nil,
		"file, directory or - for standard input, with the records to delete; can be repeated")
	c.Flags().BoolVar(&ignore, "ignore-not-found", false, "treat missing records as deleted")
	c.Flags().BoolVar(&force, "force", false, "delete records that others refer to, and print which do")
	yesFlag(c, &yes)
	return c
}

// deleteAll deletes records, also after one that cannot be deleted.
func (a *app) deleteAll(ctx context.Context, cl *client.Client, targets []target, force, ignore bool) error {
	failed := false
	for _, t := range targets {
		result, err := cl.Kind(t.info).In(t.project).Force(force).Remove(ctx, t.name)
		switch {
		case err == nil:
			fmt.Fprintf(a.Out, "%s deleted\n", title(t.info, t.name))
			a.printOrphans(result)
		case ignore && errors.Is(err, trivet.ErrNotFound):
		default:
			failed = true
			PrintError(a.Err, err)
		}
	}
	if failed {
		return ExitError(1)
	}
	return nil
}

// printOrphans prints the references that a forced deletion left without a target.
func (a *app) printOrphans(d *trivet.Deletion) {
	for _, o := range d.Orphaned {
		fmt.Fprintf(a.Out, "  %s %s still refers to it (%s)\n", strings.ToLower(string(o.Kind)),
			trivet.ShortName(trivet.FullName(o.Project, o.Name)), o.Field)
	}
}

type target struct {
	info          trivet.KindInfo
	project, name string
}

// targets returns the records that a command line or files name. Those of files are in reverse order, since later
// ones depend on earlier ones.
func (a *app) targets(args, files []string) ([]target, error) {
	var list []target
	if len(files) > 0 {
		manifests, err := a.readManifests(files)
		if err != nil {
			return nil, err
		}
		for i := len(manifests) - 1; i >= 0; i-- {
			list = append(list, target{manifests[i].info, manifests[i].project(a),
				manifests[i].record.Header().Name})
		}
		return list, nil
	}
	if len(args) > 0 && strings.Contains(args[0], "/") {
		return a.targetsByKind(args)
	}
	if len(args) < 2 {
		return nil, fmt.Errorf("%w: a kind and at least one name are required, such as: trivet delete machine m1",
			trivet.ErrInvalid)
	}
	info, err := lookupKind(args[0])
	if err != nil {
		return nil, err
	}
	for _, name := range args[1:] {
		list = append(list, target{info, a.project(), name})
	}
	return list, nil
}

// targetsByKind returns the records of arguments KIND/NAME, as trivet get -o name prints them.
func (a *app) targetsByKind(args []string) (list []target, err error) {
	for _, arg := range args {
		kind, name, ok := strings.Cut(arg, "/")
		if !ok || name == "" {
			return nil, fmt.Errorf("%w: %q: write KIND/NAME, as in the other arguments", trivet.ErrInvalid, arg)
		}
		info, err := lookupKind(kind)
		if err != nil {
			return nil, err
		}
		list = append(list, target{info, a.project(), name})
	}
	return list, nil
}
