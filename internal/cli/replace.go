package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
)

func (a *app) replace() *cobra.Command {
	var req trivet.ReplaceRequest
	var yes bool
	c := &cobra.Command{
		Use:   "replace PROVISION|MACHINE",
		Short: "Replace a machine in service by another one with the same configuration",
		Long: "Replace the machine that serves a provision by another one, with the same configuration.\n\n" +
			"The machine is put into quarantine and powered off by its BMC; its disks are not changed. Then the\n" +
			"provision claims another machine as it did at first, by its selector, and installs it. Its address moves\n" +
			"there once the BMC reports the former machine off. Nothing serves the provision meanwhile. Without a BMC\n" +
			"the former machine keeps running, and keeps its address, until you power it off.\n\n" +
			"It is refused where no other machine is free, unless --wait is given, and where the template or an image\n" +
			"has gone. Nothing counts against the machine: trivet accept returns it to use, trivet release wipes it.\n" +
			"NAME is looked up as a machine and as a provision; write machine/NAME or provision/NAME where both exist.",
		Example: "  trivet replace web1 --reason 'fan is loud'\n  trivet replace machine/m17 --yes\n" +
			"  trivet replace web1 --wait --yes -o json",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeNames("provisions"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			m, err := a.findMachine(cmd.Context(), cl, "replace", args[0])
			if err != nil {
				return err
			}
			if m.Status.Provision == "" {
				return &trivet.Error{Op: "replace", Kind: "Machine", Name: m.Name,
					Err:  fmt.Errorf("%w: it serves no provision", trivet.ErrConflict),
					Hint: "to keep it out of use: trivet quarantine " + m.Name}
			}
			if !yes {
				if err := a.confirm(cmd.Context(), "replace", replaceText(m)); err != nil {
					return err
				}
			}
			req.Machine = m.Name
			project, name := trivet.SplitName(trivet.Resolve("", m.Status.Provision))
			if err := cl.Replace(cmd.Context(), project, name, req); err != nil {
				return err
			}
			return a.reportReplaced(m, project, name)
		},
	}
	c.Flags().StringVar(&req.Reason, "reason", "", "why, for other people: it is in the events and in the quarantine")
	c.Flags().BoolVar(&req.Wait, "wait", false, "also where no other machine is free now: wait for one")
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	a.outputForms(c, "table", "json", "yaml")
	return c
}

// replaceText says what becomes of a machine and its provision.
func replaceText(m *trivet.Machine) string {
	var b strings.Builder
	fmt.Fprintf(&b, "machine/%s serves provision %s.\n", m.Name, m.Status.Provision)
	if m.Spec.BMC == nil {
		b.WriteString("  It has no BMC: it goes into quarantine and keeps running, with its address, until you power it " +
			"off.\n  Another machine is installed, with an address of its own.\n")
		return b.String()
	}
	b.WriteString("  It goes into quarantine and is POWERED OFF; its disks are not changed.\n" +
		"  Then another machine is installed. Until that is done, nothing serves the provision.\n")
	return b.String()
}

func (a *app) reportReplaced(m *trivet.Machine, project, name string) error {
	if a.output != "table" {
		return a.showValue(struct {
			Provision string `json:"provision"`
			Project   string `json:"project"`
			Replaced  string `json:"replaced"` // the machine that served it
		}{name, project, m.Name})
	}
	in := ""
	if project != trivet.DefaultProject {
		in = " -p " + project
	}
	fmt.Fprintf(a.Out, "machine/%s is replaced; to watch the next one: trivet provision%s %s --watch\n", m.Name, in, name)
	return nil
}
